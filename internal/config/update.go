package config

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
)

// emptyFile is a configuration file without keys.
const emptyFile = "version: 1\n"

// Update has edit return a change of the configuration file at path, or of the entry files beside it, and makes it atomically:
// readers see the old file or the new one, also after a crash, and after an error nothing has changed. The owner and the mode of
// a file stay. A new one has mode 0600, or 0644 with o.Trusted. One process at a time changes files of a directory. A missing
// directory is created if it is the user's or the operator's default one, and a missing file at path if it is neither: programs
// refuse a file that their command line names and that does not exist.
func Update(path string, o LoadOptions, edit func(Files) (Change, error)) error {
	dir, err := lockDirectory(path, o)
	if err != nil {
		return err
	}
	defer dir.Close()
	open, err := openIn(dir, Source{Path: path, Optional: true, Options: o})
	if err != nil {
		return err
	}
	var was os.FileInfo
	if open.open != nil {
		defer open.open.Close()
		if was, err = open.open.Stat(); err != nil {
			return err
		}
	}
	if err := open.read(); err != nil {
		return err
	}
	change, err := edit(open.Files)
	switch {
	case err != nil:
		return err
	case change.Name == path && len(change.Content) > MaxSize:
		return fmt.Errorf("%s would have %d bytes, more than %d", path, len(change.Content), MaxSize)
	case change.Name == path:
		return rewrite(dir, path, change.Content, was, o)
	case was == nil && !o.User && path != DefaultPath:
		if err := replace(dir, path, []byte(emptyFile), nil, o.Trusted); err != nil {
			return err
		}
	}
	return updateEntry(dir, path, change, slices.Concat(open.Repos, open.Principals), o)
}

// lockTimeout is how long Update waits for another process that changes a file.
const lockTimeout = 5 * time.Second

// lockDirectory opens the directory of path and locks it until it is closed or this process ends. All changes are made in this
// open directory: its path may mean another one by then.
func lockDirectory(path string, o LoadOptions) (dir *os.File, err error) {
	name := filepath.Dir(path)
	switch {
	case o.User:
		err = os.MkdirAll(name, 0o700)
	case path == DefaultPath:
		if err = os.Mkdir(name, 0o755); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if dir, err = os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0); err != nil {
		return nil, err
	}
	if err := flock.Wait(context.Background(), int(dir.Fd()), unix.LOCK_EX, time.Now().Add(lockTimeout)); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return dir, nil
}

// rewrite replaces the configuration file at path, or the one that it is a symbolic link to.
func rewrite(dir *os.File, path string, content []byte, was os.FileInfo, o LoadOptions) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !o.Links || real == path {
		return replace(dir, path, content, was, o.Trusted)
	}
	target, err := os.Open(filepath.Dir(real))
	if err != nil {
		return err
	}
	defer target.Close()
	return replace(target, real, content, was, o.Trusted)
}

// replace writes a file in dir and renames it to the last component of path, if the file there still is was, nil for none.
func replace(dir *os.File, path string, content []byte, was os.FileInfo, public bool) (err error) {
	at, temporary, base := int(dir.Fd()), ".config-"+rand.Text()+".new", filepath.Base(path) // a hidden name: see isEntry
	fd, err := unix.Openat(at, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() {
		f.Close()
		if err != nil {
			_ = unix.Unlinkat(at, temporary, 0)
		}
	}()
	if err := setOwner(f, was, public); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	switch {
	case was == nil:
		err = renameNew(at, temporary, base)
	case !unchanged(at, base, was):
		return fmt.Errorf("%s has been changed meanwhile\nhint: try again", path)
	default:
		err = unix.Renameat(at, temporary, at, base)
	}
	if err != nil {
		return &os.PathError{Op: "rename", Path: path, Err: err}
	}
	return dir.Sync()
}

// renameNew renames a file to a name that does not exist yet. NFS and some FUSE file systems cannot do so in one step
// (EINVAL, see renameat2(2)); link(2) is atomic there too.
func renameNew(at int, from, to string) error {
	err := unix.Renameat2(at, from, at, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		return linkNew(at, from, to)
	}
	return err
}

func linkNew(at int, from, to string) error {
	if err := unix.Linkat(at, from, at, to, 0); err != nil {
		return err
	}
	return unix.Unlinkat(at, from, 0)
}

// unchanged returns whether a file is what it was. Programs that do not lock, such as editors, may have changed it.
func unchanged(at int, base string, was os.FileInfo) bool {
	var st unix.Stat_t
	then, ok := was.Sys().(*syscall.Stat_t)
	err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return ok && err == nil && st.Dev == then.Dev && st.Ino == then.Ino && st.Size == then.Size &&
		st.Mtim.Nano() == then.Mtim.Nano()
}

// setOwner gives f the owner, the group and the mode of the file that it replaces.
func setOwner(f *os.File, was os.FileInfo, public bool) error {
	mode := os.FileMode(0o600)
	if public {
		mode = 0o644
	}
	if was != nil {
		mode = was.Mode().Perm()
		then, ok := was.Sys().(*syscall.Stat_t)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		now, _ := info.Sys().(*syscall.Stat_t)
		if ok && (then.Uid != now.Uid || then.Gid != now.Gid) {
			if err := f.Chown(int(then.Uid), int(then.Gid)); err != nil {
				return err
			}
		}
	}
	return f.Chmod(mode) // after chown(2), which may clear bits
}

// updateEntry creates, replaces or removes an entry file beside the configuration file at path. files are the entry files that exist.
func updateEntry(dir *os.File, path string, change Change, files []File, o LoadOptions) error {
	kind, base := filepath.Base(filepath.Dir(change.Name)), filepath.Base(change.Name)
	exists := slices.ContainsFunc(files, func(f File) bool { return f.Name == change.Name })
	switch {
	case change.Name != filepath.Join(filepath.Dir(path), kind, base) || kind != reposDir && kind != principalsDir ||
		!isEntry(base) || exists != (change.Content == nil || change.Replace):
		return fmt.Errorf("%q is not an entry file beside %s that can be changed", change.Name, path)
	case change.Content != nil && (len(files) >= maxEntries && !change.Replace || len(change.Content) > maxEntrySize):
		return fmt.Errorf("%s would be more than %d files, or have more than %d bytes", change.Name, maxEntries, maxEntrySize)
	}
	if change.Content != nil && !change.Replace {
		if err := makeEntries(dir, kind, o.Trusted); err != nil {
			return err
		}
	}
	entries, err := openEntries(dir, path, kind, o)
	if entries == nil {
		return errors.Join(err, fmt.Errorf("%s cannot be changed", change.Name))
	}
	defer entries.Close()
	if change.Replace {
		return replaceEntry(entries, change, o)
	}
	if change.Content != nil {
		return replace(entries, change.Name, change.Content, nil, o.Trusted)
	}
	if err := unix.Unlinkat(int(entries.Fd()), base, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: change.Name, Err: err}
	}
	return entries.Sync()
}

// replaceEntry replaces an entry file that exists, which keeps its owner and its mode.
func replaceEntry(entries *os.File, change Change, o LoadOptions) error {
	f, err := openAt(entries, change.Name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := checkFile(f, maxEntrySize, o.forEntries()); err != nil {
		return err
	}
	was, err := f.Stat()
	if err != nil {
		return err
	}
	return replace(entries, change.Name, change.Content, was, o.Trusted)
}

// makeEntries creates a directory of entry files in dir, which readers of public files can read whatever the umask is.
func makeEntries(dir *os.File, kind string, public bool) error {
	mode := uint32(0o700)
	if public {
		mode = 0o755
	}
	err := unix.Mkdirat(int(dir.Fd()), kind, mode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil {
		err = unix.Fchmodat(int(dir.Fd()), kind, mode, 0)
	}
	return errors.Join(err, dir.Sync())
}
