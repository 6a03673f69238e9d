// Package layer keeps what the jobs of a session write: an ext4 file system of a fixed size, in a file that has no name,
// over a loop device.
//
// Its size is the quota, in bytes and in files: it is met in the file system, by ENOSPC, and never on the host's own. A
// file without a name is gone when nobody has it open, so a supervisor that is killed leaves none. A layer that is kept is
// given a name; nothing else ever is. Nobody walks what jobs wrote to be rid of it: the file is closed.
//
// Every file of a layer belongs to the ids UID and UID+1, which are nobody's on any host. Who uses a layer maps them to
// the ids of its jail. The file system has no journal: it ends with its session, and a kept one was unmounted, or is
// checked before it is mounted again.
//
// What open layers may still grow to is there: who makes or reopens one is refused else. The stores of one file system
// count together, and so do all processes that have the same store open.
//
// The package is for root, and needs mkfs.ext4 (mke2fs(8)), e2fsck(8) and the loop driver (loop(4)).
package layer

import (
	"errors"
	"fmt"
	"os"
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

// Errors that callers tell apart.
var (
	// ErrNoRoom is a host without the space that a layer is promised.
	ErrNoRoom = errors.New("no room for a layer")
	// ErrHost is a host that lacks what layers are made with.
	ErrHost = errors.New("this host cannot keep layers")
	// ErrInUse is a kept layer that is open, in whichever process.
	ErrInUse = errors.New("it is in use")
	// ErrDamaged is a kept layer that a crash left as something that cannot be mounted.
	ErrDamaged = errors.New("the layer is damaged")
)

// A Client is for whom a layer is opened.
type Client struct {
	UID  uint32 // root may have all there is, another no more than leaves something to others
	Kept int64  // bytes of the disk that kept layers of this user have
}

// A Store is a directory in which layers are files. Its methods may be called by several goroutines.
type Store struct {
	dir  *os.File
	path string
	room *room
	owns bool // room is closed with it
}

// Open opens a store at path, a directory of root's, which it makes if it is not there. It counts together with the stores
// beside it, which must be closed after it.
func Open(path string, beside ...*Store) (*Store, error) {
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
	s := &Store{dir: dir, path: path}
	for _, b := range beside {
		if b.room.dev == st.Dev {
			s.room = b.room
			return s, nil
		}
	}
	if s.room, err = openRoom(int(dir.Fd()), st.Dev); err != nil {
		dir.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.owns = true
	return s, nil
}

// Close closes the store, whose layers must be closed; what is kept stays.
func (s *Store) Close() error {
	var err error
	if s.owns {
		err = s.room.close()
	}
	return errors.Join(err, s.dir.Close())
}

// A Layer is a mounted file system.
type Layer struct {
	store *Store
	file  *os.File // where it is kept
	loop  *loop
	path  string // of its mount
	held  *promise
	named bool // its file has a name in the store, and outlives it
}

// Check says whether there can be a layer of bytes and inodes.
func Check(bytes, inodes int64) error {
	if bytes < MinBytes || bytes > MaxBytes || inodes < MinInodes || inodes > bytes/4096 {
		return fmt.Errorf("a layer of %d bytes and %d files: from %d bytes and %d files, with 4096 bytes for each file", bytes, inodes, MinBytes, MinInodes)
	}
	return nil
}

// Make makes an empty layer of bytes and inodes and mounts it at path, a directory that is there. The caller must Close
// it.
func (s *Store) Make(path string, c Client, bytes, inodes int64) (*Layer, error) {
	if err := Check(bytes, inodes); err != nil {
		return nil, err
	}
	held, err := s.room.take(c, bytes, 0)
	if err != nil {
		return nil, err
	}
	l, err := s.fresh(path, bytes, inodes)
	if err != nil {
		return nil, errors.Join(err, s.room.give(held))
	}
	s.room.mounted(held, l.file)
	l.held = held
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
	return s.mount(file, path, 0)
}

// mount mounts what is in file, which it takes over when it returns nil error; else it closes it.
func (s *Store) mount(file *os.File, path string, flags uintptr) (*Layer, error) {
	l := &Layer{store: s, file: file, path: path}
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

// Full says whether a write may have found no room. A full ext4 has some again as soon as what it had reserved for blocks
// that were not written yet is given back: at most a sixteenth counts as that, and no more than 32 MiB.
func (u Usage) Full() bool { return u.Free < min(u.Bytes/16, 32<<20) }

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
	if err == nil && l.named {
		err = l.settle()
	}
	return errors.Join(err, l.release())
}

func (l *Layer) release() error {
	var err error
	if l.held != nil {
		err = l.store.room.give(l.held)
		l.held = nil
	}
	return errors.Join(err, l.file.Close())
}

// settle waits until all of an unmounted layer is in its file: two mounts of one file would destroy it.
func (l *Layer) settle() error {
	if err := l.loop.ended(l.file, detachPatience); err != nil {
		return err
	}
	return l.file.Sync()
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
