package artifact

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A syncer syncs artifacts to disk in groups.
type syncer struct {
	dir int

	turn sync.Mutex // one group at a time

	mu  sync.Mutex
	fds []int // guarded by mu: to be synced and closed
	all bool  // guarded by mu: there were too many for fds, so the whole file system must be synced
	due bool  // guarded by mu: a timer is running
}

const (
	// groupEvery is the maximum time an artifact waits for others.
	groupEvery = 20 * time.Millisecond
	// maxGroup is the maximum number of descriptors kept open meanwhile.
	maxGroup = 128
)

func newSyncer(dir int) *syncer { return &syncer{dir: dir} }

// add takes ownership of the descriptors of a new artifact, and schedules syncing them.
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
	if !y.due {
		y.due = true
		time.AfterFunc(groupEvery/2, y.sync)
	}
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
