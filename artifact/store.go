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
)

// Options of a Store. The zero value of each is its default.
type Options struct {
	TTL      time.Duration // how long an artifact can be read; default 24 h
	MaxCount int           // artifacts at most, the oldest go first; default 1000
	MaxBytes int64         // on disk, of all artifacts together, the oldest go first; default 1 GiB
	// StreamBytes is how much of a stream is stored, before compression: its head, and the last MiB of it. Default
	// 64 MiB; at most 1 GiB.
	StreamBytes int64
	// FsyncEach has an artifact on the disk before its handle is returned. Without it they are synced in groups within
	// 20 ms: after a power cut a handle may be unknown.
	FsyncEach bool
	// ReadOnly makes and removes nothing. A directory without a store in it is an empty store.
	ReadOnly bool
	Now      func() time.Time // default time.Now
}

// A Store keeps artifacts in a directory. Its methods may be called at once from several goroutines; several processes
// may have the same directory open.
type Store struct {
	ttl         time.Duration
	maxCount    int64
	maxBytes    int64
	streamBytes int64
	fsyncEach   bool
	readOnly    bool
	now         func() time.Time

	dir     int // -1: there is none, of a read-only store
	hashers gzipHasherPool
	reading chan struct{} // one for each Query that reads now
	quota   quota
	owners  owners
	syncer  *syncer       // nil with fsyncEach
	taken   chan struct{} // artifacts were taken away whose files are to be removed, or there is little room
	stop    context.CancelFunc
	swept   sync.WaitGroup
}

// storeName is the directory of artifacts within that of a user's state.
const storeName = "artifacts"

// defaultRules are the same for all.
var defaultRules = sync.OnceValue(func() *ruleset { return newRuleset(patternRules()) })

// Open opens the store in a directory of state, which stays the caller's, and makes it if it is not there. What expired
// and what killed processes left is removed in the background, from now on at intervals.
//
// The error is of the directory, or of an option out of bounds.
func Open(state *os.File, o Options) (*Store, error) {
	s := &Store{
		ttl: o.TTL, maxCount: int64(o.MaxCount), maxBytes: o.MaxBytes, streamBytes: o.StreamBytes,
		fsyncEach: o.FsyncEach, readOnly: o.ReadOnly, now: o.Now, dir: -1,
		taken: make(chan struct{}, 1), reading: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.defaults()
	if s.ttl < 0 || s.maxCount < 0 || s.maxBytes < 0 || s.streamBytes < minStream || s.streamBytes > maxStream-markerRoom {
		return nil, fmt.Errorf("artifacts: ttl %v, max_count %d, max_bytes %d, %d bytes of a stream: out of bounds",
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

// defaultStream is how much of a stream is stored if nothing else is wanted.
const defaultStream = 64 << 20

// minStream is the least that can be stored of a stream: less has no room for what says that it was cut.
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
		if err := unix.Mkdirat(state, storeName, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return errName("mkdir", storeName, err)
		}
	}
	if s.dir, err = openat(state, storeName, dirFlags); err != nil {
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

// Close waits for what the store does in the background. Outputs that were begun must have ended.
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

// commit makes t the artifact of that handle and principal, of size bytes on disk.
func (s *Store) commit(t *tempDir, handle, principal string, size int64) error {
	if size > s.maxBytes {
		return errors.New("it is larger than all that may be stored")
	}
	if s.fsyncEach {
		for _, fd := range t.fds() {
			if err := unix.Fsync(fd); err != nil {
				return errName("fsync", t.name, err)
			}
		}
	}
	crowded := false
	err := s.quota.with(func(u usage) (usage, error) {
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
		return errName("rename", t.name, err)
	}
	t.name = ""
	s.owners.set(handle, principal)
	if crowded {
		s.tell()
	}
	if s.fsyncEach {
		return errName("fsync", storeName, unix.Fsync(s.dir))
	}
	s.syncer.add(t.hand())
	return nil
}
