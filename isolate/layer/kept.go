package layer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/volume"
)

// detachPatience is the timeout for a layer's loop device to be detached after its mount.
var detachPatience = 5 * time.Second

// Keep unmounts the layer and gives its file a name in the store, which must match [A-Za-z0-9._-]+. A layer on which data was
// lost gets none (see Sync). It closes the layer, also on error.
func (l *Layer) Keep(name string) error {
	err := errors.Join(l.Sync(), l.unmount())
	if err == nil {
		err = l.waitWritten()
	}
	if err == nil {
		err = l.link(name)
	}
	if err == nil {
		err = l.syncStore(name)
	}
	return errors.Join(err, l.release())
}

// Name gives the layer's file a name in the store, as Keep does, while the layer is in use: then it is certain that Close
// will leave it there, even if the store's file system is full by then. Until Close nobody can open it by that name.
// Remove takes the name away for good: the kernel does not link a file again whose link count has dropped to zero
// (linkat(2)).
func (l *Layer) Name(name string) error {
	// The loop device shares the open file description, so the lock is held until that is detached, too.
	if err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return inUse(name, err)
	}
	if err := l.link(name); err != nil {
		return err
	}
	l.named = true
	return l.syncStore(name)
}

// Named reports whether the layer has a name, or had one that was removed.
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

// lostMode is the mode of the file of a layer on which data was lost. A change of mode needs no space, unlike an attribute.
const lostMode = 0o400

// Sync waits until everything written to the layer is in its file, and returns write errors: the store's file system may
// be full. A write that failed, also before this call, was of data that a job believes to be there: from then on, Sync
// returns an error that wraps ErrLost, also after Reopen. Calls must not overlap each other or Close.
func (l *Layer) Sync() error {
	if l.lost != nil {
		return l.lost
	}
	err := unix.Syncfs(int(l.root.Fd()))
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		return nil
	}
	l.lost = fmt.Errorf("%w: %w", ErrLost, err)
	return errors.Join(l.lost, l.file.Chmod(lostMode))
}

// Lost returns the error of Sync once that wraps ErrLost, nil before.
func (l *Layer) Lost() error { return l.lost }

// Reopen mounts a kept layer at path. It fails with ErrInUse if the layer is open, in any process. A layer that was not
// unmounted is checked first, which may take minutes. inodes is the number it was made with. The caller must Close the layer.
func (s *Store) Reopen(name, path string, c Client, inodes int64) (*Layer, error) {
	file, err := s.lock(name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		file.Close()
		return nil, fmt.Errorf("layer %s: %w", name, errors.Join(ErrHost, err))
	}
	held, err := s.ledger.take(c, st.Size, min(inodes, st.Size/minFile), st.Blocks*512)
	if err != nil {
		file.Close()
		return nil, err
	}
	l, err := s.checkAndMount(file, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("layer %s: %w", name, err), s.ledger.give(held))
	}
	l.held, l.named = held, true
	if err := s.ledger.mounted(held, l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if st.Mode&0o777 == lostMode {
		l.lost = ErrLost
	}
	return l, nil
}

// checkAndMount checks and mounts file, and closes it on error.
func (s *Store) checkAndMount(file *os.File, path string) (*Layer, error) {
	if err := volume.Repair(file); err != nil {
		file.Close()
		return nil, err
	}
	return s.mount(file, path, 0)
}

// lock opens a kept layer exclusively.
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

// OpenReadOnly mounts a kept layer read-only at path. A layer may be mounted read-only any number of times. The caller
// must Close it.
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

// RemoveUnused removes a kept layer, or returns ErrInUse if it is open.
func (s *Store) RemoveUnused(name string) error {
	file, err := s.lock(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.Remove(name)
}

// Remove removes a kept layer. A process that has it open keeps it until it closes it.
func (s *Store) Remove(name string) error {
	if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: filepath.Join(s.path, name), Err: err}
	}
	return nil
}
