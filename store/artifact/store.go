package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/artifact/spool"
	"corral/store/at"
)

// Options of a Store. A zero field means its default.
type Options struct {
	TTL      time.Duration // how long an artifact can be read; default 24 h
	MaxCount int           // maximum number of artifacts, the oldest are evicted; default 1000
	MaxBytes int64         // maximum size on disk of all artifacts, the oldest are evicted; default 1 GiB
	// StreamBytes is the maximum number of bytes stored of a stream, before compression: its head, and its last MiB.
	// Default 64 MiB; maximum 1 GiB.
	StreamBytes int64
	// FsyncEach syncs an artifact to disk before its handle is returned. Without it, artifacts are synced in groups
	// within 20 ms; after a power cut a returned handle may be unknown.
	FsyncEach bool
	// ReadOnly creates and removes nothing. A directory without a store is an empty store then.
	ReadOnly bool
	Now      func() time.Time // default time.Now
}

// A Store keeps artifacts in a directory. Its methods may be called by several goroutines at once; several processes
// may have the same directory open.
type Store struct {
	ttl         time.Duration
	maxCount    int64
	maxBytes    int64
	streamBytes int64
	fsyncEach   bool
	readOnly    bool
	now         func() time.Time

	dir     int // -1 if there is none, in a read-only store
	hashers spool.Pool
	reading chan struct{} // semaphore of running queries
	quota   quota
	owners  owners
	syncer  *syncer       // nil with fsyncEach
	taken   chan struct{} // wakes the sweeper: artifacts were evicted, or the quota is nearly reached
	stop    context.CancelFunc
	swept   sync.WaitGroup
}

// storeName is the directory of the store within a user's state directory.
const storeName = "artifacts"

// Open opens the store in a state directory, and creates it if missing. The caller keeps ownership of state. Expired
// artifacts, and what killed processes left, are removed in the background, now and at intervals.
//
// The error is about the directory, or an option that is out of bounds.
func Open(state *os.File, o Options) (*Store, error) {
	s := &Store{
		ttl: o.TTL, maxCount: int64(o.MaxCount), maxBytes: o.MaxBytes, streamBytes: o.StreamBytes,
		fsyncEach: o.FsyncEach, readOnly: o.ReadOnly, now: o.Now, dir: -1,
		taken: make(chan struct{}, 1), reading: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.defaults()
	if s.ttl < 0 || s.maxCount < 0 || s.maxBytes < 0 || s.streamBytes < minStream || s.streamBytes > manifest.MaxStream-spool.MarkerRoom {
		return nil, fmt.Errorf("artifacts: ttl %v, max_count %d, max_bytes %d, %d bytes of a stream: a value is out of bounds",
			s.ttl, s.maxCount, s.maxBytes, s.streamBytes)
	}
	if err := s.open(state); err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	if s.readOnly {
		return s, nil
	}
	if !s.fsyncEach {
		s.syncer = newSyncer(s.dir)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.swept.Go(func() { s.sweepAtIntervals(ctx) })
	return s, nil
}

// defaultStream is the default of Options.StreamBytes.
const defaultStream = 64 << 20

// minStream is the minimum of Options.StreamBytes: a smaller one would have no room for the marker of a gap.
const minStream = 1 << 10

func (s *Store) defaults() {
	if s.ttl == 0 {
		s.ttl = 24 * time.Hour
	}
	if s.maxCount == 0 {
		s.maxCount = 1000
	}
	if s.maxBytes == 0 {
		s.maxBytes = 1 << 30
	}
	if s.streamBytes == 0 {
		s.streamBytes = defaultStream
	}
	if s.now == nil {
		s.now = time.Now
	}
}

func (s *Store) open(state *os.File) error {
	c, err := state.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := c.Control(func(fd uintptr) { err = s.openAt(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (s *Store) openAt(state int) (err error) {
	if !s.readOnly {
		if err := unix.Mkdirat(state, storeName, at.DirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return at.Err("mkdir", storeName, err)
		}
	}
	if s.dir, err = at.Open(state, storeName, at.Dir); err != nil {
		if s.readOnly && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	if s.readOnly {
		return nil
	}
	if err = s.quota.open(s.dir); err != nil {
		unix.Close(s.dir)
	}
	return err
}

// Close waits for the background work. All Outputs must have ended.
func (s *Store) Close() {
	if s == nil || s.dir < 0 {
		return
	}
	if !s.readOnly {
		s.stop()
		s.swept.Wait()
		if s.syncer != nil {
			s.syncer.close()
		}
		s.quota.close()
	}
	unix.Close(s.dir)
	s.dir = -1
}

// commit renames t to the artifact with that handle and principal; size is its size on disk in bytes.
func (s *Store) commit(t *tempDir, handle, principal string, size int64) error {
	if size > s.maxBytes {
		return errors.New("it is larger than the quota of the store")
	}
	if s.fsyncEach {
		for _, fd := range t.fds() {
			if err := unix.Fsync(fd); err != nil {
				return at.Err("fsync", t.name, err)
			}
		}
	}
	crowded := false
	err := s.quota.update(func(u usage) (usage, error) {
		if u.count+1 > s.maxCount || u.bytes+size > s.maxBytes {
			var err error
			if u, err = s.makeRoom(principal, usage{1, size}); err != nil {
				return u, err
			}
		}
		u.count++
		u.bytes += size
		s.date(t.name)
		crowded = s.crowded(u)
		return u, unix.Renameat2(s.dir, t.name, s.dir, handle, unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, errShare) {
		return err
	}
	if err != nil {
		return at.Err("rename", t.name, err)
	}
	t.name = ""
	s.owners.set(handle, principal)
	if crowded {
		s.wakeSweeper()
	}
	if s.fsyncEach {
		return at.Err("fsync", storeName, unix.Fsync(s.dir))
	}
	s.syncer.add(t.hand())
	return nil
}
