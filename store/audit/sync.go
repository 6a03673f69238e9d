package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// ErrClosed is returned for what is done with an audit log after it was closed.
var ErrClosed = errors.New("audit: the audit log is closed")

// groupDelay is how long a record may wait for others before they are synced together. That leaves the disk as long
// again of the 20 ms.
const groupDelay = 10 * time.Millisecond

// A syncer syncs records in its own goroutine, with one call for all that were written meanwhile. An error is
// permanent: the kernel drops data that it failed to write (fsync(2)).
type syncer struct {
	each bool
	call func() error

	wake   chan struct{} // used with each
	timer  *time.Timer   // used without each: writers need not wake the goroutine, the timer does once per group
	ending chan struct{} // closed by End
	done   chan struct{}

	mu              fault.Mutex
	changed         *sync.Cond
	written, synced uint64 // guarded by mu: seqs
	err             error  // guarded by mu
	armed           bool   // guarded by mu: the timer is running
	ended           bool   // guarded by mu
}

// newSyncer returns a running syncer that syncs by call. With each, Wrote waits for it; otherwise records are synced within
// 20 ms. It must be ended.
func newSyncer(each bool, call func() error) *syncer {
	s := &syncer{each: each, call: call, wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	s.timer = time.NewTimer(groupDelay)
	s.timer.Stop()
	go s.run()
	return s
}

func (s *syncer) run() {
	defer close(s.done)
	defer s.timer.Stop()
	for ended := false; !ended; {
		select {
		case <-s.wake:
		case <-s.timer.C:
		case <-s.ending:
			ended = true
		}
		s.syncOnce()
	}
}

func (s *syncer) syncOnce() {
	var target uint64
	idle := fault.Get(&s.mu, func() bool {
		s.armed = false
		target = s.written
		return target == s.synced || s.err != nil
	})
	if idle {
		return
	}
	err := s.call()
	fault.With(&s.mu, func() {
		s.synced = target
		if err != nil {
			s.err = err
		}
	})
	s.changed.Broadcast()
}

// Wrote reports that a record was written; with each, it waits until it is on disk.
func (s *syncer) Wrote(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = max(s.written, seq)
	if s.ended {
		return ErrClosed
	}
	s.schedule()
	for s.each && s.synced < seq && s.err == nil {
		s.changed.Wait()
	}
	return s.err
}

// schedule wakes the goroutine at once or, without each, when a group has gathered. The caller holds s.mu.
func (s *syncer) schedule() {
	switch {
	case s.each:
		select {
		case s.wake <- struct{}{}:
		default:
		}
	case !s.armed:
		s.armed = true
		s.timer.Reset(groupDelay)
	}
}

// failure returns the first error of syncing, or nil.
func (s *syncer) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Fail records an error of syncing elsewhere.
func (s *syncer) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.changed.Broadcast()
}

// End syncs the rest, and stops the goroutine.
func (s *syncer) End() error {
	fault.With(&s.mu, func() {
		s.ended = true
		close(s.ending)
	})
	<-s.done
	return s.Failure()
}

// dataSync calls fdatasync(2). If another goroutine has closed the file, it was synced before.
func dataSync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	closed := raw.Control(func(fd uintptr) { err = unix.Fdatasync(int(fd)) })
	if closed != nil || err == nil {
		return nil
	}
	return fmt.Errorf("audit: %s could not be synced to disk: no job can be recorded or run: %w", f.Name(), err)
}
