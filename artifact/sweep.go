package artifact

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sweepEvery is the time between two sweeps.
const sweepEvery = 5 * time.Minute

func (s *Store) sweepAtIntervals(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	s.sweep(ctx)
	for {
		select {
		case <-ctx.Done():
			s.clear()
			return
		case <-ticker.C:
			s.sweep(ctx)
		case <-s.taken:
			s.makeRoomAhead()
			s.clear()
		}
	}
}

// clear removes the files of what was taken away.
func (s *Store) clear() {
	all, err := names(s.dir, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if strings.HasPrefix(name, gonePrefix) {
			_ = removeDir(s.dir, name)
		}
	}
}

// sweep removes what expired, what processes left that were killed, and what is more than the quotas; then the usage is
// right. What cannot be removed is left to the next sweep.
func (s *Store) sweep(ctx context.Context) {
	all, err := names(s.dir, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if ctx.Err() != nil {
			return
		}
		switch at, ok := made(name); {
		case strings.HasPrefix(name, tempPrefix):
			s.sweepTemp(name)
		case ok && s.expired(name, at):
			_ = s.remove(name)
		}
	}
	_ = s.quota.with(func(usage) (usage, error) {
		return s.makeRoom("", usage{})
	})
	s.clear()
}

// sweepTemp removes a directory whose maker is gone, which holds no lock any more.
func (s *Store) sweepTemp(name string) {
	fd, err := openat(s.dir, name, dirFlags)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if tryLock(fd) == nil {
		_ = removeDir(s.dir, name)
	}
}

// expired says whether an artifact made at that time is. The manifest says so; without one that can be read, the time.
func (s *Store) expired(handle string, at time.Time) bool {
	now := s.now()
	m, dir, err := s.manifest(handle)
	if err != nil {
		return at.Add(s.ttl).Before(now)
	}
	unix.Close(dir)
	s.owners.set(handle, m.Principal)
	return !now.Before(m.ExpiresAt)
}

// A syncer brings artifacts to the disk in groups.
type syncer struct {
	dir int

	turn sync.Mutex // one group after the other

	mu    sync.Mutex
	fds   []int       // guarded by mu: to be synced and closed
	all   bool        // guarded by mu: more than fds are to be synced
	due   bool        // guarded by mu: the timer runs
	timer *time.Timer // guarded by mu: nil before the first artifact
}

const (
	// groupEvery is how long an artifact waits for others, at most.
	groupEvery = 20 * time.Millisecond
	// groupMost is how many descriptors are kept open for that.
	groupMost = 128
)

func newSyncer(dir int) *syncer { return &syncer{dir: dir} }

// add takes over the descriptors of a new artifact, and has them synced soon. Nobody is woken for it: its reply is yet to
// be written.
func (y *syncer) add(fds []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, fd := range fds {
		if len(y.fds) >= groupMost {
			y.all = true
			unix.Close(fd)
			continue
		}
		y.fds = append(y.fds, fd)
	}
	y.start()
}

// wind has the timer run for an artifact that is to come soon. It may come later, or never: then there is nothing to do yet.
func (y *syncer) wind() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.start()
}

// start has the timer run. The caller holds the lock.
func (y *syncer) start() {
	switch {
	case y.due:
		return
	case y.timer == nil:
		y.timer = time.AfterFunc(groupEvery/2, y.sync)
	default:
		y.timer.Reset(groupEvery / 2)
	}
	y.due = true
}

// sync brings the group to the disk: files before the name that makes them an artifact.
func (y *syncer) sync() {
	y.turn.Lock()
	defer y.turn.Unlock()
	y.mu.Lock()
	fds, all := y.fds, y.all
	y.fds, y.all, y.due = nil, false, false
	y.mu.Unlock()
	for _, fd := range fds {
		_ = unix.Fsync(fd) // what is not on the disk is not there after a power cut; there is nobody to tell
		unix.Close(fd)
	}
	switch {
	case all:
		_ = unix.Syncfs(y.dir)
	case len(fds) > 0:
		_ = unix.Fsync(y.dir)
	}
}

// close syncs what is left. Nothing may be added any more: the timer finds nothing then.
func (y *syncer) close() { y.sync() }
