package layer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// detachPatience is how long a layer's loop device may take to end after its mount.
const detachPatience = 5 * time.Second

// Keep unmounts the layer and gives its file a name in the store: [A-Za-z0-9._-]+. The layer is closed then, whatever the
// error.
func (l *Layer) Keep(name string) error {
	err := l.unmount()
	if err == nil {
		err = l.settle()
	}
	if err == nil {
		err = l.link(name)
	}
	if err == nil {
		err = l.syncStore(name)
	}
	return errors.Join(err, l.release())
}

// Name gives the layer's file a name in the store, as Keep does, while the layer is in use: it is known then that Close will leave
// it there, whatever happens to the store's file system. Until Close nobody can open it by that name. Remove takes the name away, for
// good: the kernel gives a file that has had a name, and has none any more, no other (linkat(2)).
func (l *Layer) Name(name string) error {
	// The loop device has the same open file, so the lock is held until that has ended, too.
	if err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return inUse(name, err)
	}
	if err := l.link(name); err != nil {
		return err
	}
	l.named = true
	return l.syncStore(name)
}

// Named says whether the layer has a name, or had one that was removed.
func (l *Layer) Named() bool { return l.named }

func (l *Layer) link(name string) error {
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()), int(l.store.dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return fmt.Errorf("keep a layer as %s: %w", name, err)
	}
	return nil
}

func (l *Layer) syncStore(name string) error {
	if err := l.store.dir.Sync(); err != nil {
		return fmt.Errorf("keep a layer as %s: %w", name, err)
	}
	return nil
}

// Sync waits until all that was written to the layer is in its file, and says what could not be written: the store's file
// system may be full.
func (l *Layer) Sync() error {
	dir, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("write a layer: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("write a layer: %w", err)
	}
	return nil
}

// Reopen mounts a layer that was kept, at path. A second one of a name is refused, in whichever process. One that was not
// unmounted is checked first, which takes its time.
func (s *Store) Reopen(name, path string, c Client) (*Layer, error) {
	file, err := s.lock(name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		file.Close()
		return nil, fmt.Errorf("layer %s: %w", name, errors.Join(ErrHost, err))
	}
	held, err := s.room.take(c, st.Size, st.Blocks*512)
	if err != nil {
		file.Close()
		return nil, err
	}
	l, err := s.again(file, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("layer %s: %w", name, err), s.room.give(held))
	}
	s.room.mounted(held, file)
	l.held, l.named = held, true
	return l, nil
}

// again takes over file, as mount does.
func (s *Store) again(file *os.File, path string) (*Layer, error) {
	if err := check(file); err != nil {
		file.Close()
		return nil, err
	}
	return s.mount(file, path, 0)
}

// lock opens a layer that was kept, for nobody else.
func (s *Store) lock(name string) (*os.File, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(s.path, name), Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return nil, inUse(name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func inUse(name string, err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	return fmt.Errorf("layer %s: %w", name, err)
}

// OpenReadOnly mounts a layer that was kept, at path, so that nothing can be changed. It may be mounted so any number of
// times.
func (s *Store) OpenReadOnly(name, path string) (*Layer, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(s.path, name), Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, inUse(name, err)
	}
	return s.mount(file, path, unix.MS_RDONLY)
}

// RemoveUnused removes a layer that was kept, unless it is open.
func (s *Store) RemoveUnused(name string) error {
	file, err := s.lock(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.Remove(name)
}

// Remove removes a layer that was kept. Who has it open has it until its end.
func (s *Store) Remove(name string) error {
	if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: filepath.Join(s.path, name), Err: err}
	}
	return nil
}
