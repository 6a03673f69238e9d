// Package layer stores the files that the jobs of a session write: an ext4 file system of a fixed size, on a loop device,
// whose backing file has no name.
//
// Its size is the quota, in bytes and in files: a job that exceeds it gets ENOSPC from the layer, and never fills the
// host's file system. A file without a name disappears when no process has it open, so a killed supervisor leaves none
// behind. Only a layer that is kept gets a name. Discarding a layer does not walk the files that jobs wrote: its file is
// closed.
//
// Every file of a layer belongs to the ids UID and UID+1, which no host assigns. The user of a layer maps them to the ids
// of its jail. The file system has no journal: it ends with its session; a kept one was unmounted, or is checked before
// it is mounted again.
//
// Disk space for the growth of all open layers is reserved, though less than their size (see ledger): creating or reopening a layer
// fails if there is not enough, and jobs get ENOSPC from their layer before the host's file system is full.
// The stores of one file system count together, and so do all processes that have the same store open.
//
// The package needs root, mkfs.ext4 (mke2fs(8)), e2fsck(8) and the loop driver (loop(4)).
package layer

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/volume"
)

// UID and UID+1 own all files on a layer, as users and as groups: the first is the jail's root, the second the user of
// its jobs. The number lies in a range from which no host assigns user ids, see isolate.DefaultUIDBase.
const UID = 0x70000000

// Bounds of a layer.
const (
	MinBytes  = 16 << 20
	MaxBytes  = 1 << 40
	MinInodes = 64
	minFile   = 4096 // bytes of a layer for each file
)

// Errors that callers distinguish.
var (
	// ErrNoRoom is returned if the host has too little space for a layer.
	ErrNoRoom = errors.New("no room for a layer")
	// ErrHost is returned if the host lacks a feature or program that layers need.
	ErrHost = volume.ErrHost
	// ErrInUse is returned for a kept layer that is open, in any process.
	ErrInUse = errors.New("in use")
	// ErrDamaged is returned for a kept layer that cannot be mounted after a crash.
	ErrDamaged = volume.ErrDamaged
	// ErrLost is returned for a layer on which data that jobs had written did not reach its file. It stays with the layer.
	ErrLost = errors.New("data that jobs wrote to the layer was lost")
)

// A Client is the user for whom a layer is opened.
type Client struct {
	UID  uint32 // root may use all the space; other users must leave a share to others
	Kept int64  // bytes of disk used by this user's kept layers
}

// A Store is a directory that contains the files of layers. Its methods may be called from several goroutines.
type Store struct {
	dir    *os.File
	path   string
	ledger *ledger
	owns   bool // Close closes ledger
}

// Options are about the space that the layers of stores on one file system use.
type Options struct {
	// Reserve is how many bytes the jobs of an open layer can write for certain, what they have written included. More is shared.
	Reserve int64
	Log     *slog.Logger // gets a line when room becomes short; nil: none
}

// Open opens a store at path, a directory owned by root, and creates it if it does not exist. Stores on the same file
// system as one in beside share its accounting and Options; they must be closed before that one.
func Open(path string, o Options, beside ...*Store) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
		if b.ledger.dev == st.Dev {
			s.ledger = b.ledger
			return s, nil
		}
	}
	if s.ledger, err = openLedger(int(dir.Fd()), st.Dev, o); err != nil {
		dir.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.owns = true
	return s, nil
}

// Close closes the store; its layers must have been closed. Kept layers stay.
func (s *Store) Close() error {
	var err error
	if s.owns {
		err = s.ledger.close()
	}
	return errors.Join(err, s.dir.Close())
}

// A Layer is a mounted file system.
type Layer struct {
	store *Store
	file  *os.File // the backing file
	loop  *volume.Loop
	path  string // of the mount
	held  *reservation
	// unused is how many clusters of the file system the kernel keeps back by itself.
	unused int64
	named  bool // its file has a name in the store, and outlives the mount
	// root is the layer's root directory, open from the mount on: the kernel reports a failed write of the file system once
	// to each descriptor that was open when the write failed (syncfs(2)).
	root *os.File
	lost error // wraps ErrLost once a write is known to have failed
}

// Check returns an error unless a layer may have this size, in bytes and in files.
func Check(bytes, inodes int64) error {
	if bytes < MinBytes || bytes > MaxBytes || inodes < MinInodes || inodes > bytes/minFile {
		return fmt.Errorf("a layer of %d bytes and %d files: must have at least %d bytes, %d files, and 4096 bytes for each file", bytes, inodes, MinBytes, MinInodes)
	}
	return nil
}

// Make creates an empty layer of bytes and inodes and mounts it at path, an existing directory. The caller must Close it.
func (s *Store) Make(path string, c Client, bytes, inodes int64) (*Layer, error) {
	if err := Check(bytes, inodes); err != nil {
		return nil, err
	}
	held, err := s.ledger.take(c, bytes, inodes, 0)
	if err != nil {
		return nil, err
	}
	l, err := s.fresh(path, bytes, inodes)
	if err != nil {
		return nil, errors.Join(err, s.ledger.give(held))
	}
	l.held = held
	if err := s.ledger.mounted(held, l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (s *Store) fresh(path string, bytes, inodes int64) (*Layer, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: a file without a name in %s: %w\nhint: keep the state directory on ext4, xfs or btrfs", ErrHost, s.path, err)
	}
	file := os.NewFile(uintptr(fd), "layer")
	if err := volume.Format(file, bytes, inodes); err != nil {
		file.Close()
		return nil, err
	}
	return s.mount(file, path, 0)
}

// mount mounts file on a loop device. On success the layer owns file; otherwise mount closes it.
func (s *Store) mount(file *os.File, path string, flags uintptr) (*Layer, error) {
	l := &Layer{store: s, file: file, path: path}
	var err error
	if l.loop, err = volume.Attach(file, flags&unix.MS_RDONLY != 0); err != nil {
		file.Close()
		return nil, err
	}
	// Space that a job frees is returned to the host (discard). After an error the file system becomes read-only.
	err = unix.Mount(l.loop.Node(), path, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME|flags, "discard,errors=remount-ro")
	if err == nil {
		err = unix.Mount("", path, "", unix.MS_PRIVATE, "")
	}
	l.loop.Close() // the kernel detaches it with its last mount
	if err == nil {
		l.root, err = os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		file.Close()
		return nil, fmt.Errorf("mount a layer: %w", err)
	}
	return l, nil
}

// Path returns the layer's mount point.
func (l *Layer) Path() string { return l.path }

// Usage is a layer's size and free space, in bytes and in files.
// Free is what jobs may write, Used what they have written.
type Usage struct{ Bytes, Used, Free, Files, FreeFiles int64 }

// Full reports whether a write may have failed for lack of space. A full ext4 has some free space again as soon as it
// releases reservations for blocks not yet written: up to a sixteenth, and at most 32 MiB, counts as full.
func (u Usage) Full() bool { return u.Free < min(u.Bytes/16, 32<<20) }

// Usage returns the file system's current usage (statfs(2)).
func (l *Layer) Usage() (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(l.path, &st); err != nil {
		return Usage{}, fmt.Errorf("statfs of a layer: %w", err)
	}
	return Usage{
		Bytes: int64(st.Blocks) * st.Bsize, Used: int64(st.Blocks-st.Bfree) * st.Bsize, Free: int64(st.Bavail) * st.Bsize,
		Files: int64(st.Files), FreeFiles: int64(st.Ffree),
	}, nil
}

// Close unmounts the layer and closes its file: unless the layer has a name, it is gone then. Files of it that other processes
// hold become unusable.
func (l *Layer) Close() error {
	err := l.unmount()
	switch {
	case err != nil:
	case l.named:
		err = l.waitWritten()
	case l.held != nil: // not read-only
		err = l.awaitDetached(false)
	}
	return errors.Join(err, l.release())
}

func (l *Layer) release() error {
	var err error
	if l.held != nil {
		err = l.store.ledger.give(l.held)
		l.held = nil
	}
	return errors.Join(err, l.file.Close())
}

// waitWritten waits until an unmounted layer is completely written to its file: two mounts of one file would destroy it.
func (l *Layer) waitWritten() error {
	if err := l.awaitDetached(true); err != nil {
		return err
	}
	return l.file.Sync()
}

// awaitDetached returns when nobody can write to the unmounted layer any more. Jobs can pass descriptors on over a unix
// socket, so processes of others may hold files of it: its file system is then shut down. With keep, what was written to the
// layer is in its file afterwards; without, the file is empty.
func (l *Layer) awaitDetached(keep bool) error {
	err := l.loop.Ended(l.file, detachPatience)
	if !errors.Is(err, volume.ErrStillUsed) {
		return err
	}
	if err := l.shutDown(keep); err != nil {
		return fmt.Errorf("shut down a layer whose files other processes hold: %w", err)
	}
	if keep {
		// The device shares the lock, and has no more use for it.
		return unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	}
	return l.file.Truncate(0) // the space is given back before the file
}

// unmount unmounts the layer. It retries for a moment if a copy of the mount is still in use.
func (l *Layer) unmount() error {
	var err error
	if l.held != nil {
		l.store.ledger.unmounting(l.held)
	}
	if l.root != nil { // else it would keep the mount busy
		l.root.Close()
		l.root = nil
	}
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
