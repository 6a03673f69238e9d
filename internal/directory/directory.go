// Package directory opens directories on paths that untrusted users may control: repositories, worktrees, toolchains.
//
// Open follows no symbolic link anywhere in the path, and names the first one in its error. A user, or a job of that user,
// can replace any component that they own: a link in place of a repository would lead root to a directory that only root
// may enter. An Account opens a directory with the rights of one user, so that root can do so on behalf of that user.
// RootOnly reports whether only root controls where a path leads.
//
// The package starts nothing and imports little, because every front-end links it.
package directory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrPath reports a path that is relative, not clean (filepath.Clean), or contains a NUL.
var ErrPath = errors.New("not an absolute path, or with . or .. in it")

// A LinkError reports a path that leads through a symbolic link. It wraps ELOOP.
type LinkError struct {
	Path string // the path that could not be opened
	Link string // the first symbolic link in it: Path itself or a directory above it; "" if it has been removed since
}

func (e *LinkError) Error() string {
	switch e.Link {
	case "":
		return fmt.Sprintf("%q was a symbolic link, or led through one", e.Path)
	case e.Path:
		return fmt.Sprintf("%q is a symbolic link", e.Path)
	}
	return fmt.Sprintf("%q leads through the symbolic link %q", e.Path, e.Link)
}

// LinkHint tells users what to do about a LinkError.
const LinkHint = "name the directory by its real path, which `realpath` prints"

// Unwrap makes errors.Is(err, unix.ELOOP) hold.
func (e *LinkError) Unwrap() error { return unix.ELOOP }

// Open opens the directory at path, which must be absolute and clean, and returns an O_PATH descriptor of it
// (openat2(2), RESOLVE_NO_SYMLINKS). A path with a symbolic link in it is a *LinkError; every other error is an
// *os.PathError with the kernel's error number.
func Open(path string) (*os.File, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrPath}
	}
	fd, err := open(unix.AT_FDCWD, path)
	if errors.Is(err, unix.ELOOP) {
		return nil, &LinkError{Path: path, Link: firstLink(path)}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(at int, path string) (int, error) {
	return unix.Openat2(at, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// firstLink returns the path of the first component of path that is a symbolic link, or "".
func firstLink(path string) string {
	var st unix.Stat_t
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		if unix.Lstat(path[:end], &st) != nil {
			return ""
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return path[:end]
		}
	}
	return ""
}

// RootOnly returns nil if only root controls which directory path leads to; dir is an open descriptor of that directory.
// Every component, including path itself, must belong to root and be writable for neither its group nor others (an ACL
// shows in the group's bits). A directory above path may also have the sticky bit, like /tmp: other users cannot rename or
// remove root's files in it. The error names the first component for which this does not hold.
func RootOnly(path string, dir *os.File) error {
	at, st, err := openRoots(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	// Only after all directories above it are known to be root's: a user's file system might never answer.
	var want unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &want); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Dev != want.Dev || st.Ino != want.Ino {
		return fmt.Errorf("%q was replaced by another directory meanwhile", path)
	}
	return rootOnly(path, &st, false)
}

// OpenRoots is Open for a directory that RootOnly accepts. It looks into no directory before it knows that it is root's.
func OpenRoots(path string) (*os.File, error) {
	at, st, err := openRoots(path)
	if err != nil {
		return nil, err
	}
	if err := rootOnly(path, &st, false); err != nil {
		unix.Close(at)
		return nil, err
	}
	return os.NewFile(uintptr(at), path), nil
}

// openRoots opens a directory below others that are root's alone, and returns its descriptor and status.
func openRoots(path string) (at int, st unix.Stat_t, err error) {
	if at, err = open(unix.AT_FDCWD, "/"); err != nil {
		return -1, st, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	if err = unix.Fstat(at, &st); err != nil {
		err = fmt.Errorf("fstat: %w", err)
	}
	here := "/"
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err == nil && name != "" {
			at, here, err = openNext(at, here, name, &st)
		}
	}
	if err != nil {
		unix.Close(at)
		return -1, st, err
	}
	return at, st, nil
}

// openNext opens the directory name in the one at path here, which is open as at with status *st, if that is root's alone. It returns
// the new descriptor and path, and sets *st; after an error it returns at.
func openNext(at int, here, name string, st *unix.Stat_t) (next int, path string, err error) {
	if err := rootOnly(here, st, true); err != nil {
		return at, here, err
	}
	path = filepath.Join(here, name)
	next, err = open(at, name)
	if err == nil {
		unix.Close(at)
		at, err = next, unix.Fstat(next, st)
	}
	if err != nil {
		return at, here, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return at, path, nil
}

func rootOnly(path string, st *unix.Stat_t, sticky bool) error {
	switch {
	case st.Uid != 0:
		return fmt.Errorf("%q belongs to user %d", path, st.Uid)
	case st.Mode&0o022 != 0 && (!sticky || st.Mode&unix.S_ISVTX == 0):
		return fmt.Errorf("%q has mode %04o: other users than root may write to it", path, st.Mode&0o7777)
	}
	return nil
}

// Absolute makes the name of a directory absolute and clean, without reading links. A relative one is relative to the working
// directory as getcwd(2) returns it. The shell's $PWD is not used, because it may contain a symbolic link.
func Absolute(name string) (string, error) {
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buffer)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	cwd := unix.ByteSliceToString(buffer[:n])
	if !filepath.IsAbs(cwd) { // "(unreachable)", getcwd(3)
		return "", fmt.Errorf("working directory: %w", unix.ENOENT)
	}
	return filepath.Join(cwd, name), nil
}

// Within reports whether path is dir or below it. Both must be absolute and clean; only the names are compared.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Overlap reports whether one of two directories is the other or below it, see Within.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }
