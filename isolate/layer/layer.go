// Package layer keeps what the jobs of a session write: an ext4 file system of a fixed size, in a file that has no name,
// over a loop device.
//
// Its size is the quota, in bytes and in files: it is met in the file system, by ENOSPC, and never on the host's own. A
// file without a name is gone when nobody has it open, so a supervisor that is killed leaves none. A layer that is kept is
// given a name; nothing else ever is. Nobody walks what jobs wrote to be rid of it: the file is closed.
//
// Every file of a layer belongs to the ids UID and UID+1, which are nobody's on any host. Who uses a layer maps them to
// the ids of its jail. The file system has no journal: it ends with its session, and a kept one was unmounted.
//
// The package is for root, and needs mkfs.ext4 (mke2fs(8)) and the loop driver (loop(4)).
package layer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// UID and UID+1 own all that is on a layer, as users and as groups: the first is the jail's root, the second the user of
// its jobs. The number lies where no host gives ids to users, see isolate.DefaultUIDBase.
const UID = 0x70000000

// Bounds of a layer.
const (
	MinBytes  = 16 << 20
	MaxBytes  = 1 << 40
	MinInodes = 64
)

// Full is how many bytes of a full layer may seem to be free: less than a file's next extent takes.
const Full = 64 << 10

// Errors that callers tell apart.
var (
	// ErrNoRoom is a host without the space that a layer is promised.
	ErrNoRoom = errors.New("no room for a layer")
	// ErrHost is a host that lacks what layers are made with.
	ErrHost = errors.New("this host cannot keep layers")
)

// A Store is a directory in which layers are files. Its methods may be called by several goroutines.
type Store struct {
	dir  *os.File
	path string
	room room
}

// Open opens a store at path, a directory of root's, which it makes if it is not there.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Uid != 0 || st.Mode&0o077 != 0 {
		dir.Close()
		return nil, fmt.Errorf("%s must be a directory of root that nobody else can enter: %w", path, errors.Join(ErrHost, err))
	}
	return &Store{dir: dir, path: path}, nil
}

// Close closes the store; layers stay.
func (s *Store) Close() error { return s.dir.Close() }

// A Layer is a mounted file system.
type Layer struct {
	store *Store
	file  *os.File // where it is kept
	loop  *loop
	path  string // of its mount
	bytes int64
	held  bool // counted in the store's room
}

// Make makes an empty layer of bytes and inodes and mounts it at path, a directory that is there. The caller must Close
// it.
func (s *Store) Make(path string, bytes, inodes int64) (*Layer, error) {
	if bytes < MinBytes || bytes > MaxBytes || inodes < MinInodes || inodes > bytes/4096 {
		return nil, fmt.Errorf("a layer of %d bytes and %d files: from %d bytes and %d files, with 4096 bytes for each file", bytes, inodes, MinBytes, MinInodes)
	}
	if err := s.room.take(int(s.dir.Fd()), bytes); err != nil {
		return nil, err
	}
	l, err := s.fresh(path, bytes, inodes)
	if err != nil {
		s.room.give(bytes)
		return nil, err
	}
	l.held = true
	return l, nil
}

func (s *Store) fresh(path string, bytes, inodes int64) (*Layer, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: a file without a name in %s: %w\nhint: keep the state directory on ext4, xfs or btrfs", ErrHost, s.path, err)
	}
	file := os.NewFile(uintptr(fd), "layer")
	if err := file.Truncate(bytes); err != nil {
		file.Close()
		return nil, err
	}
	if err := mkfs(file, inodes); err != nil {
		file.Close()
		return nil, err
	}
	return s.mount(file, path, bytes, 0)
}

// mkfs makes an empty ext4. Nothing is reserved for root, for root writes nothing here.
func mkfs(file *os.File, inodes int64) error {
	program, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		return fmt.Errorf("%w: %w\nhint: install e2fsprogs", ErrHost, err)
	}
	c := exec.Command(program, "-q", "-F", "-b", "4096", "-m", "0", "-N", strconv.FormatInt(inodes, 10),
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", "/proc/self/fd/3")
	c.ExtraFiles = []*os.File{file}
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG=/dev/null"}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %.400s", err, out)
	}
	return nil
}

// mount mounts what is in file, which it takes over when it returns nil error; else it closes it.
func (s *Store) mount(file *os.File, path string, bytes int64, flags uintptr) (*Layer, error) {
	l := &Layer{store: s, file: file, path: path, bytes: bytes}
	var err error
	if l.loop, err = attach(file, flags&unix.MS_RDONLY != 0); err != nil {
		file.Close()
		return nil, err
	}
	// Space that a job frees goes back to the host (discard). An error of the file system is its end.
	err = unix.Mount(l.loop.node(), path, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME|flags, "discard,errors=remount-ro")
	if err == nil {
		err = unix.Mount("", path, "", unix.MS_PRIVATE, "")
	}
	l.loop.letGo() // it is detached with its last mount
	if err != nil {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		file.Close()
		return nil, fmt.Errorf("mount a layer: %w", err)
	}
	return l, nil
}

// Path is where the layer is mounted.
func (l *Layer) Path() string { return l.path }

// Usage is what a layer has and what can still be written to it, in bytes and in files.
type Usage struct{ Bytes, Free, Files, FreeFiles int64 }

// Usage asks the file system.
func (l *Layer) Usage() (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(l.path, &st); err != nil {
		return Usage{}, fmt.Errorf("statfs of a layer: %w", err)
	}
	return Usage{
		Bytes: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize,
		Files: int64(st.Files), FreeFiles: int64(st.Ffree),
	}, nil
}

// Close unmounts the layer and lets go of its file: unless it was kept, it is gone then.
func (l *Layer) Close() error {
	err := l.unmount()
	return errors.Join(err, l.release())
}

func (l *Layer) release() error {
	if l.held {
		l.store.room.give(l.bytes)
		l.held = false
	}
	return l.file.Close()
}

// unmount waits a moment for who still has a copy of the mount on its way out.
func (l *Layer) unmount() error {
	var err error
	for wait := time.Millisecond; wait < 200*time.Millisecond; wait *= 2 {
		if err = unix.Unmount(l.path, unix.UMOUNT_NOFOLLOW); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(l.path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("umount a layer: %w", err)
	}
	return nil
}

// detachPatience is how long a layer's loop device may take to end after its mount.
const detachPatience = 5 * time.Second

// Keep unmounts the layer and gives its file a name in the store: [A-Za-z0-9._-]+. The layer is closed then, whatever the
// error.
func (l *Layer) Keep(name string) error {
	err := l.unmount()
	if err == nil {
		err = l.loop.ended(l.file, detachPatience) // two mounts of one file would destroy it
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()), int(l.store.dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			err = fmt.Errorf("keep a layer as %s: %w", name, err)
		}
	}
	if err == nil {
		err = l.store.dir.Sync()
	}
	return errors.Join(err, l.release())
}

// Reopen mounts a layer that was kept, at path. A second one of a name is refused, in whichever process.
func (s *Store) Reopen(name, path string) (*Layer, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(s.path, name), Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("layer %s is in use: %w", name, err)
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("layer %s: %w", name, errors.Join(ErrHost, err))
	}
	return s.mount(file, path, info.Size(), 0)
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
		return nil, fmt.Errorf("layer %s is in use: %w", name, err)
	}
	return s.mount(file, path, 0, unix.MS_RDONLY)
}

// Remove removes a layer that was kept.
func (s *Store) Remove(name string) error {
	if err := unix.Unlinkat(int(s.dir.Fd()), name, 0); err != nil {
		return &os.PathError{Op: "unlink", Path: filepath.Join(s.path, name), Err: err}
	}
	return nil
}
