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
)

// A Socket listens on a unix socket that it has made.
type Socket struct {
	l    *net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
}

// ListenUnix makes a unix socket at path, which is absolute, of this process's user. mode is who may connect as far as the
// file system says: 0600, or 0666 where others are known by SO_PEERCRED. A socket that lies there already is replaced if
// it is this user's and nobody listens on it; anything else is an error.
//
// No other user can put something else in the socket's place, or it is an error: each directory on the way must be root's
// or this user's, and writable for nobody else unless it is sticky, as /tmp.
func ListenUnix(path string, mode fs.FileMode) (*Socket, error) {
	dir, err := ownDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	path = filepath.Join(dir, filepath.Base(path))
	unlock, err := lockSocket(path) // two servers at once would each remove the other's
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := makeWay(path); err != nil {
		return nil, err
	}
	// The mode of a socket's descriptor is what bind(2) gives the file, so there is no moment in which it has another.
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
	s.l.SetUnlinkOnClose(false) // which goes by name: see Close
	if err := s.settle(mode); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// settle notes which file it is, and lets others connect if they may: bind(2) has taken the umask from the mode.
func (s *Socket) settle(mode fs.FileMode) (err error) {
	if s.made, err = os.Lstat(s.path); err != nil {
		return err
	}
	if s.made.Mode().Perm() == mode {
		return nil
	}
	return os.Chmod(s.path, mode)
}

// Path is where it is, without symbolic links.
func (s *Socket) Path() string { return s.path }

// Close removes the socket, unless it is another by now, and ends the listening.
func (s *Socket) Close() error {
	err := error(nil)
	s.once.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && s.made != nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path) // one that stays is replaced by the next server
		}
		err = s.l.Close()
	})
	return err
}

// ownDirectory returns dir without symbolic links, if no other user can change what a name in it stands for.
func ownDirectory(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("directory of the socket: %w", err)
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return "", fmt.Errorf("directory of the socket: %w", err)
		}
		if why := unsafe(info); why != "" {
			return "", fmt.Errorf("the socket would lie in %s, and %s %s\nhint: a directory of your own is $XDG_RUNTIME_DIR", real, at, why)
		}
		if at == "/" {
			return real, nil
		}
	}
}

// unsafe says why others may change what names in a directory stand for, "" if they may not.
func unsafe(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return "is no directory"
	case stat.Uid != 0 && stat.Uid != uint32(os.Getuid()):
		return fmt.Sprintf("belongs to user %d", stat.Uid)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
		return "can be written to by others"
	}
	return ""
}

// lockPatience is how long another server may take to make a socket.
const lockPatience = 5 * time.Second

// lockSocket has nobody else make the socket at path meanwhile, by a file beside it that only this user can open. A lock on the
// directory itself would be anybody's who can read that: /tmp is everybody's. The file is removed at the end.
func lockSocket(path string) (unlock func(), err error) {
	file := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for end := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		f, err := lockFile(file)
		switch {
		case err == nil:
			return func() {
				_ = os.Remove(file) // while it is locked: who waits for it looks whether it is still there
				_ = f.Close()
			}, nil
		case errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end):
			continue
		}
		return nil, fmt.Errorf("lock %s, for the socket to be made: %w\nhint: if no server of yours is just starting, remove the file, or name another path for the socket", file, err)
	}
}

// lockFile makes the file, if it is not there, and locks it. EWOULDBLOCK is that somebody else has, or has removed it meanwhile.
func lockFile(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil {
		err = lockable(opened)
	}
	for locked := err == nil; locked; locked = errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
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

// lockable refuses a file that another user can lock, or has put there.
func lockable(info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || stat.Uid != uint32(os.Getuid()) || info.Mode().Perm()&0o077 != 0 {
		return errors.New("it is not a file of this user's that nobody else can open")
	}
	return nil
}

// makeWay removes the socket of a server that was killed. The kernel says whether anybody listens (connect(2)): only
// ECONNREFUSED is nobody.
func makeWay(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s exists and is no socket\nhint: name another path, or move it away", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != uint32(os.Getuid()) {
		return fmt.Errorf("%s is another user's socket\nhint: name another path", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("another server listens on %s", path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("another program uses %s: %w", path, err)
	}
	return os.Remove(path)
}
