package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// MaxSize is the maximum number of bytes of a configuration file.
const MaxSize = 1 << 20

// LoadOptions say how a file is read. They apply to the entry files beside it as well, except for Links.
type LoadOptions struct {
	// Trusted refuses a file that somebody other than root could have written: it and its directory must belong to root, and
	// neither group nor others may write to them.
	Trusted bool
	// Own refuses a file that does not belong to this process's user or root, or to which everybody may write. Entry files are
	// always at least checked like this.
	Own bool
	// Links lets the file be a symbolic link. Entry files and their directories are never links.
	Links bool
	// User says that it is a user's file, which must not have keys for the supervisor.
	User bool
}

// oPath is O_PATH of open(2): whoever may pass through a directory may open a file in it.
const oPath = 0x200000

// openFile opens the file at path, which must be regular, in its directory dir, wherever that is by now. It checks who could have
// written it.
func openFile(dir *os.File, path string, o LoadOptions) (*os.File, error) {
	if o.Trusted {
		if err := checkOwner(dir, filepath.Dir(path), o); err != nil {
			return nil, err
		}
	}
	flags := os.O_RDONLY | syscall.O_NONBLOCK // opening a FIFO would wait for a writer
	if !o.Links {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := openAt(dir, path, flags)
	if err != nil {
		return nil, err
	}
	if err := checkFile(f, MaxSize, o); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openAt opens the last component of path in dir.
func openAt(dir *os.File, path string, flags int) (*os.File, error) {
	fd, err := syscall.Openat(int(dir.Fd()), filepath.Base(path), flags|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link\nhint: put the file itself there", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkFile checks the kind, the size and the owner of an open file.
func checkFile(f *os.File, maxSize int64, o LoadOptions) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	case info.Size() > maxSize:
		return fmt.Errorf("%s has %d bytes, more than %d", f.Name(), info.Size(), maxSize)
	}
	return checkOwner(f, f.Name(), o)
}

// checkOwner checks who may write to an open file or directory, which is at path.
func checkOwner(f *os.File, path string, o LoadOptions) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case o.Trusted:
		return rootsAlone(path, info)
	case o.Own:
		return usersOwn(path, info, uint32(os.Geteuid()))
	}
	return nil
}

// usersOwn accepts that a group may write: where each user has a group of their own, editors allow it.
func usersOwn(path string, info os.FileInfo, uid uint32) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: its owner is unknown", path)
	case st.Uid != 0 && st.Uid != uid:
		return fmt.Errorf("%s belongs to user %d: what governs your jobs must be yours\nhint: chown %d %s", path, st.Uid, uid, path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody (mode %04o)\nhint: chmod o-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// rootsAlone checks owner and permissions. Where a file has an access control list, the group's bits are its mask (acl(5)), so
// the list is covered.
func rootsAlone(path string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: its owner is unknown", path)
	case st.Uid != 0:
		return fmt.Errorf("%s belongs to user %d: what the supervisor obeys must be root's\nhint: chown root %s", path, st.Uid, path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others than root (mode %04o)\nhint: chmod go-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// read returns the content of an open file of at most maxSize bytes.
func read(f *os.File, maxSize int64) (*File, error) {
	content, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && int64(len(content)) > maxSize { // it grew after it was opened
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), maxSize)
	}
	return &File{f.Name(), content}, err
}

func lookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err
}
