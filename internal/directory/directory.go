// Package directory opens directories whose paths others may have had a hand in: a repository, a worktree, a toolchain.
//
// Open follows no symbolic link, anywhere in the path, and names the one it met. A path whose components belong to a user,
// or to a job of that user, is otherwise what they have made of it at the moment: a link in place of a repository is the
// shortest way to a directory that only root may enter. An Account opens a directory with the rights of one user, so that
// root can do it for somebody without lending its own. RootOnly says whether anybody but root decides what a path leads to.
//
// It starts nothing and imports little: every front-end has it.
package directory

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrPath is a path that is relative, not clean (filepath.Clean), or holds a byte 0.
var ErrPath = errors.New("not an absolute path, or with . or .. in it")

// A LinkError is a path that leads through a symbolic link. It wraps ELOOP.
type LinkError struct {
	Path string // that was to be opened
	Link string // the first symbolic link in it: Path itself, or a directory above it; "" if there is none any more
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

// LinkHint is what to do about a LinkError.
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

// firstLink returns the first component of path that is a symbolic link, as a path; "" if none is.
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

// RootOnly returns nil if root alone decides which directory path leads to, dir being an open descriptor of it: every
// component, path itself included, belongs to root, and nobody else can replace what is in it. That is the case if neither
// its group nor others may write to it (an ACL shows in the bits of the group), or, for a directory above path, if it has
// the sticky bit, as /tmp does: there nobody else renames or removes what is root's. The error names the first component
// that is otherwise.
func RootOnly(path string, dir *os.File) error {
	at, err := open(unix.AT_FDCWD, "/")
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { unix.Close(at) }()
	var st, want unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	here := "/"
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name == "" {
			continue
		}
		if err := rootOnly(here, &st, true); err != nil {
			return err
		}
		next, err := open(at, name)
		if err == nil {
			unix.Close(at)
			at, here = next, filepath.Join(here, name)
			err = unix.Fstat(at, &st)
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: filepath.Join(here, name), Err: err}
		}
	}
	// Not before all above it are root's: a user's file system may not answer.
	if err := unix.Fstat(int(dir.Fd()), &want); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Dev != want.Dev || st.Ino != want.Ino {
		return fmt.Errorf("%q is another directory than a moment ago", path)
	}
	return rootOnly(here, &st, false)
}

func rootOnly(path string, st *unix.Stat_t, sticky bool) error {
	switch {
	case st.Uid != 0:
		return fmt.Errorf("%q belongs to user %d", path, st.Uid)
	case st.Mode&0o022 != 0 && (!sticky || st.Mode&unix.S_ISVTX == 0):
		return fmt.Errorf("%q has mode %04o: others than root may write to it", path, st.Mode&0o7777)
	}
	return nil
}

// Absolute makes the name of a directory absolute and clean, by text alone. A relative one is relative to the working
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

// Within says whether path is dir or lies in it. Both are absolute and clean; it is decided by text alone.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Overlap says whether one of two directories is the other, or lies in it.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }
