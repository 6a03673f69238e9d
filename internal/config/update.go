package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// emptyFile is a configuration file without keys.
const emptyFile = "version: 1\n"

// Update has edit return a change of the configuration file at path, or of the entry files beside it, and makes it atomically:
// readers see the old file or the new one, also after a crash, and after an error nothing has changed. The mode and the group of
// a file stay. A new one has mode 0600, or 0644 with o.Trusted. One process at a time changes files of a directory. A missing
// directory is created if it is the user's or the operator's default one, and a missing file at path if it is neither: programs
// refuse a file that their command line names and that does not exist.
func Update(path string, o LoadOptions, edit func(Files) (Change, error)) error {
	d, err := lockDirectory(path, o)
	if err != nil {
		return err
	}
	defer d.unlock()
	open, err := openIn(d.file, Source{Path: path, Optional: true, Options: o})
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
	if err != nil {
		return err
	}
	if change.Name == path {
		return d.rewrite(path, change.Content, was, o)
	}
	if was == nil && !o.User && path != DefaultPath {
		if err := d.replace(path, []byte(emptyFile), nil, o.Trusted); err != nil {
			return err
		}
	}
	return d.updateEntry(path, change, slices.Concat(open.Repos, open.Principals), o)
}

// lockTimeout is how long Update waits for another process that changes a file.
const lockTimeout = 5 * time.Second

// A lockedDir is a locked directory. All operations in it use its descriptor: its path may mean another directory by then.
type lockedDir struct {
	root *os.Root
	file *os.File // the same directory
}

func (d *lockedDir) unlock() {
	_ = d.file.Close()
	_ = d.root.Close()
}

// lockDirectory locks the directory of path until it is unlocked or this process ends.
func lockDirectory(path string, o LoadOptions) (d *lockedDir, err error) {
	dir := filepath.Dir(path)
	switch {
	case o.User:
		err = os.MkdirAll(dir, 0o700)
	case path == DefaultPath:
		if err = os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if d, err = openLocked(dir); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(d.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(deadline) {
			d.unlock()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// openLocked opens a directory for locking.
func openLocked(dir string) (*lockedDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	file, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return &lockedDir{root, file}, nil
}

// rewrite replaces the file at path, or the one that it is a symbolic link to.
func (d *lockedDir) rewrite(path string, content []byte, was os.FileInfo, o LoadOptions) error {
	if len(content) > MaxSize {
		return fmt.Errorf("%s would have %d bytes, more than %d", path, len(content), MaxSize)
	}
	if o.Links {
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			target, err := openLocked(filepath.Dir(real))
			if err != nil {
				return err
			}
			defer target.unlock()
			return target.replace(real, content, was, o.Trusted)
		}
	}
	return d.replace(path, content, was, o.Trusted)
}

// replace writes a file beside path and renames it, if the one at path is still what it was.
func (d *lockedDir) replace(path string, content []byte, was os.FileInfo, public bool) (err error) {
	temporary := temporaryName()
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, d.root.Remove(temporary))
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
	if err := d.unchanged(path, was); err != nil {
		return err
	}
	if err := d.root.Rename(temporary, filepath.Base(path)); err != nil {
		return err
	}
	return d.file.Sync()
}

// temporaryName returns the name of a file that is not complete. Readers of entry files ignore it.
func temporaryName() string { return ".config-" + rand.Text() + ".new" }

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

// unchanged detects a change by a program that does not lock, such as an editor.
func (d *lockedDir) unchanged(path string, was os.FileInfo) error {
	is, err := d.root.Lstat(filepath.Base(path))
	switch {
	case was == nil && errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && was != nil && os.SameFile(was, is) && was.ModTime().Equal(is.ModTime()) && was.Size() == is.Size():
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	return fmt.Errorf("%s has been changed meanwhile\nhint: try again", path)
}

// updateEntry creates or removes an entry file beside the configuration file at path. files are the entry files that exist.
func (d *lockedDir) updateEntry(path string, change Change, files []File, o LoadOptions) error {
	dir, base := filepath.Split(change.Name)
	kind := filepath.Base(dir)
	exists := slices.ContainsFunc(files, func(f File) bool { return f.Name == change.Name })
	if filepath.Clean(dir) != filepath.Join(filepath.Dir(path), kind) || kind != reposDir && kind != principalsDir ||
		!isEntry(base) || exists != (change.Content == nil) {
		return fmt.Errorf("%q is not an entry file beside %s that can be changed", change.Name, path)
	}
	if change.Content != nil {
		if err := d.makeEntries(kind, o); err != nil {
			return err
		}
	}
	entries, err := openEntries(d.file, path, kind, o)
	if entries == nil {
		return errors.Join(err, fmt.Errorf("%s has been changed meanwhile\nhint: try again", dir))
	}
	defer entries.Close()
	if change.Content == nil {
		if err := unix.Unlinkat(int(entries.Fd()), base, 0); err != nil {
			return &os.PathError{Op: "unlink", Path: change.Name, Err: err}
		}
		return entries.Sync()
	}
	if len(files) >= maxEntries || len(change.Content) > maxEntrySize {
		return fmt.Errorf("%s would be more than %d files, or have more than %d bytes", change.Name, maxEntries, maxEntrySize)
	}
	return createEntry(entries, base, change, o.Trusted)
}

// makeEntries creates a directory of entry files.
func (d *lockedDir) makeEntries(kind string, o LoadOptions) error {
	mode := os.FileMode(0o700)
	if o.Trusted {
		mode = 0o755
	}
	err := d.root.Mkdir(kind, mode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, d.root.Chmod(kind, mode), d.file.Sync()) // whatever the umask
}

// createEntry creates a file in the directory of entry files dir. It never replaces one.
func createEntry(dir *os.File, base string, change Change, public bool) (err error) {
	temporary := temporaryName()
	fd, err := unix.Openat(int(dir.Fd()), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: change.Name, Err: err}
	}
	f := os.NewFile(uintptr(fd), change.Name)
	defer func() {
		f.Close()
		if err != nil {
			_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		}
	}()
	if err := setOwner(f, nil, public); err != nil {
		return err
	}
	if _, err := f.Write(change.Content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := unix.Renameat2(int(dir.Fd()), temporary, int(dir.Fd()), base, unix.RENAME_NOREPLACE); err != nil {
		return &os.PathError{Op: "rename", Path: change.Name, Err: err}
	}
	return dir.Sync()
}
