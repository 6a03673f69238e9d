package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
)

// A Socket is a listening unix socket created by ListenUnix.
type Socket struct {
	l    *net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
}

// ListenUnix creates a unix socket at path, which must be absolute. The file belongs to the user of this process. mode is
// its permissions: 0600, or 0666 if other users are to connect and be identified by SO_PEERCRED. An existing socket is
// replaced if it belongs to this user and nobody listens on it; any other existing file is an error.
//
// It fails if another user could replace the socket: every parent directory must belong to root or to this user, and must
// not be writable by others unless it is sticky, like /tmp.
func ListenUnix(path string, mode fs.FileMode) (*Socket, error) {
	dir, err := ownDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	path = filepath.Join(dir, filepath.Base(path))
	unlock, err := lockSocket(path) // two servers that start at once would remove each other's socket
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// bind(2) gives the file the mode of the socket's descriptor. Setting it before leaves no moment with a wider mode.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlled := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); controlled != nil {
			return controlled
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, errors.Unwrap(err))
	}
	s := &Socket{l: l.(*net.UnixListener), path: path}
	s.l.SetUnlinkOnClose(false) // it unlinks by name; Close checks the inode
	if err := s.setMode(mode); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// setMode records the identity of the file and sets its mode: bind(2) has applied the umask.
func (s *Socket) setMode(mode fs.FileMode) (err error) {
	if s.made, err = os.Lstat(s.path); err != nil {
		return err
	}
	if s.made.Mode().Perm() == mode {
		return nil
	}
	return os.Chmod(s.path, mode)
}

// Path returns the path of the socket, without symbolic links.
func (s *Socket) Path() string { return s.path }

// Close stops listening, and removes the socket file unless it was replaced by another one.
func (s *Socket) Close() error {
	err := error(nil)
	s.once.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && s.made != nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path) // if this fails, the next server replaces it
		}
		err = s.l.Close()
	})
	return err
}

// ownDirectory resolves the symbolic links of dir. It fails if another user could replace an entry on the resulting path.
func ownDirectory(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("socket directory: %w", err)
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return "", fmt.Errorf("socket directory: %w", err)
		}
		if why := whyUnsafe(info); why != "" {
			return "", fmt.Errorf("cannot create a socket in %s: %s %s\nhint: use a directory that only you can write to, such as $XDG_RUNTIME_DIR", real, at, why)
		}
		if at == "/" {
			return real, nil
		}
	}
}

// whyUnsafe returns why other users could replace entries of a directory, or "" if they cannot.
func whyUnsafe(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return "is not a directory"
	case stat.Uid != 0 && stat.Uid != uint32(os.Getuid()):
		return fmt.Sprintf("belongs to user %d", stat.Uid)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
		return "can be written to by others"
	}
	return ""
}

// lockTimeout bounds the wait for another server that is creating a socket.
const lockTimeout = 5 * time.Second

// lockSocket serializes the creation of the socket at path, with a lock file beside it that only this user can open. The
// directory itself is unsuitable: whoever can read it could lock it, and everybody can read /tmp. unlock removes the
// file.
func lockSocket(path string) (unlock func(), err error) {
	file := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for end := time.Now().Add(lockTimeout); ; time.Sleep(20 * time.Millisecond) {
		f, err := lockFile(file)
		switch {
		case err == nil:
			return func() {
				_ = os.Remove(file) // still locked: a waiter notices the removal and tries again
				_ = f.Close()
			}, nil
		case errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end):
			continue
		}
		return nil, fmt.Errorf("lock %s to create the socket: %w\nhint: if no other server of yours is starting, remove the file, or use another path for the socket", file, err)
	}
}

// lockFile opens or creates file and locks it. It returns EWOULDBLOCK if the file is locked, or was removed meanwhile.
func lockFile(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		err = lockable(opened)
	}
	if err == nil {
		err = flock.Try(int(f.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		if now, failed := os.Lstat(file); failed != nil || !os.SameFile(now, opened) {
			err = unix.EWOULDBLOCK
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lockable refuses a file that another user created or could lock.
func lockable(info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || stat.Uid != uint32(os.Getuid()) || info.Mode().Perm()&0o077 != 0 {
		return errors.New("not a regular file that only this user can open")
	}
	return nil
}

// removeStale removes the socket of a server that was killed. If connect(2) fails with ECONNREFUSED, nobody listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket\nhint: use another path, or move the file away", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("%s belongs to another user\nhint: use another path", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("another server is listening on %s", path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("another program uses %s: %w", path, err)
	}
	return os.Remove(path)
}
