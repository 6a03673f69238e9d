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

// MaxSize is the most bytes that a file may have.
const MaxSize = 1 << 20

// LoadOptions say how a file is read.
type LoadOptions struct {
	// Trusted refuses a file that somebody else than root could have written: it and its directory must be root's, and
	// neither group nor others may write to them.
	Trusted bool
	// Own refuses a file that belongs to somebody else than this process's user or root, or that everybody may write to.
	Own bool
	// Links lets the file be a symbolic link.
	Links bool
	// User says that it is a user's file, which has no keys of the supervisor's.
	User bool
	// LookupUser returns the id of a user's name; nil asks the system.
	LookupUser func(name string) (uint32, error)
}

// Load reads the file at path, and no other. It wraps os.ErrNotExist when there is none; what is wrong in it is an Errors.
func Load(path string, o LoadOptions) (Config, error) {
	f, err := Open(path, o)
	if err != nil {
		return Config{}, err
	}
	defer f.file.Close()
	return f.Load()
}

// A File is one that was opened and not yet read: who gives up privileges does so in between.
type File struct {
	file    *os.File
	options LoadOptions
}

// Open opens the file at path, which must be a regular one, and looks at who could have written it.
func Open(path string, o LoadOptions) (*File, error) {
	d, err := os.OpenFile(filepath.Dir(path), oPath|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return openIn(d, path, o)
}

// oPath is O_PATH of open(2): who may pass through a directory may open a file in it.
const oPath = 0x200000

// openIn opens the file at path in its directory, wherever that is by now.
func openIn(dir *os.File, path string, o LoadOptions) (*File, error) {
	if o.LookupUser == nil {
		o.LookupUser = lookupUser
	}
	if o.Trusted {
		info, err := dir.Stat()
		if err != nil {
			return nil, err
		}
		if err := rootsAlone(filepath.Dir(path), info); err != nil {
			return nil, err
		}
	}
	flags := os.O_RDONLY | syscall.O_NONBLOCK // to open a FIFO waits for its writer
	if !o.Links {
		flags |= syscall.O_NOFOLLOW
	}
	fd, err := syscall.Openat(int(dir.Fd()), filepath.Base(path), flags|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link\nhint: put the file itself there", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := &File{os.NewFile(uintptr(fd), path), o}
	if err := f.check(); err != nil {
		f.file.Close()
		return nil, err
	}
	return f, nil
}

func (f *File) check() error {
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", f.file.Name())
	case info.Size() > MaxSize:
		return fmt.Errorf("%s has %d bytes, more than %d", f.file.Name(), info.Size(), MaxSize)
	case f.options.Trusted:
		return rootsAlone(f.file.Name(), info)
	case f.options.Own:
		return usersOwn(f.file.Name(), info, uint32(os.Geteuid()))
	}
	return nil
}

// usersOwn lets a group write: where each user has a group of their own, editors let it.
func usersOwn(path string, info os.FileInfo, uid uint32) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: its owner is not known", path)
	case st.Uid != 0 && st.Uid != uid:
		return fmt.Errorf("%s belongs to user %d: what governs your jobs must be yours\nhint: chown %d %s", path, st.Uid, uid, path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody (mode %04o)\nhint: chmod o-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// rootsAlone is about permissions and owner. The group's bits are an access list's mask where there is one (acl(5)), so
// that it is covered.
func rootsAlone(path string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s: its owner is not known", path)
	case st.Uid != 0:
		return fmt.Errorf("%s belongs to user %d: what the supervisor obeys must be root's\nhint: chown root %s", path, st.Uid, path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others than root (mode %04o)\nhint: chmod go-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

// Load reads and checks what is in the file.
func (f *File) Load() (Config, error) {
	t, err := f.text()
	if err != nil {
		return Config{}, err
	}
	return parse([]source{t}, f.options.LookupUser)
}

// Parse reads and checks content, as that of the file name.
func Parse(name string, content []byte, o LoadOptions) (Config, error) {
	if o.LookupUser == nil {
		o.LookupUser = lookupUser
	}
	return parse([]source{{name, content, o.User}}, o.LookupUser)
}

func (f *File) text() (source, error) {
	content, err := io.ReadAll(io.LimitReader(f.file, MaxSize+1))
	if err == nil && len(content) > MaxSize { // it grew
		err = fmt.Errorf("%s has more than %d bytes", f.file.Name(), MaxSize)
	}
	return source{f.file.Name(), content, f.options.User}, err
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

func lookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err
}
