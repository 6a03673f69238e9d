package artifact

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/at"
)

// sweepEvery is the interval between sweeps.
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

// clear removes the files of unlinked artifacts.
func (s *Store) clear() {
	all, err := at.Names(s.dir, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if strings.HasPrefix(name, gonePrefix) {
			_ = removeDir(s.dir, name)
		}
	}
}

// sweep removes expired artifacts, what killed processes left, and artifacts beyond the quotas, and corrects the
// recorded usage. What cannot be removed is left to the next sweep.
func (s *Store) sweep(ctx context.Context) {
	all, err := at.Names(s.dir, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if ctx.Err() != nil {
			return
		}
		switch at, ok := manifest.ParseHandle(name); {
		case strings.HasPrefix(name, tempPrefix):
			s.sweepTemp(name)
		case ok && s.expired(name, at):
			_ = s.remove(name)
		}
	}
	_ = s.quota.update(func(usage) (usage, error) {
		return s.makeRoom("", usage{})
	})
	s.clear()
}

// sweepTemp removes a temporary directory if the process that created it is gone and so holds no lock on it.
func (s *Store) sweepTemp(name string) {
	fd, err := at.Open(s.dir, name, at.Dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if at.TryLock(fd) == nil {
		_ = removeDir(s.dir, name)
	}
}

// expired reports whether an artifact has expired. Without a readable manifest, its age decides.
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

// A syncer syncs artifacts to disk in groups.
type syncer struct {
	dir int

	turn sync.Mutex // one group at a time

	mu    sync.Mutex
	fds   []int       // guarded by mu: to be synced and closed
	all   bool        // guarded by mu: there were too many for fds, so the whole file system must be synced
	due   bool        // guarded by mu: the timer is running
	timer *time.Timer // guarded by mu: nil before the first artifact
}

const (
	// groupEvery is the maximum time an artifact waits for others.
	groupEvery = 20 * time.Millisecond
	// maxGroup is the maximum number of descriptors kept open meanwhile.
	maxGroup = 128
)

func newSyncer(dir int) *syncer { return &syncer{dir: dir} }

// add takes ownership of the descriptors of a new artifact, and schedules syncing them. It wakes no goroutine,
// because the artifact's reply has not been written yet.
func (y *syncer) add(fds []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, fd := range fds {
		if len(y.fds) >= maxGroup {
			y.all = true
			unix.Close(fd)
			continue
		}
		y.fds = append(y.fds, fd)
	}
	y.start()
}

// wind starts the timer for an artifact that is expected soon. If it is late or never comes, the timer finds nothing
// to do.
func (y *syncer) wind() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.start()
}

// start starts the timer. The caller holds mu.
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

// sync syncs the group: files before the directory entry that makes them an artifact.
func (y *syncer) sync() {
	y.turn.Lock()
	defer y.turn.Unlock()
	y.mu.Lock()
	fds, all := y.fds, y.all
	y.fds, y.all, y.due = nil, false, false
	y.mu.Unlock()
	for _, fd := range fds {
		_ = unix.Fsync(fd) // an artifact that fails to sync may be lost in a power cut; nobody waits for the error
		unix.Close(fd)
	}
	switch {
	case all:
		_ = unix.Syncfs(y.dir)
	case len(fds) > 0:
		_ = unix.Fsync(y.dir)
	}
}

// close syncs the rest. Nothing may be added afterwards, so a pending timer finds nothing.
func (y *syncer) close() { y.sync() }
