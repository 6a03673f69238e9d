package audit

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// groupDelay is how long a record may wait for others before the disk is asked to take all of them. It leaves the disk as
// much again of the 20 ms.
const groupDelay = 10 * time.Millisecond

// A syncer has the disk take what was written: a goroutine, which begins when there is something and takes with one call
// all there is. An error is for good: what the kernel failed to write it has forgotten (fsync(2)).
type syncer struct {
	each bool
	call func() error

	wake   chan struct{} // with each
	timer  *time.Timer   // without: a goroutine that waits for it is not woken by who writes, but when the group is together
	ending chan struct{} // closed by end
	done   chan struct{}

	mu              sync.Mutex
	changed         *sync.Cond
	written, synced uint64 // guarded by mu: seqs
	err             error  // guarded by mu
	armed           bool   // guarded by mu: the timer runs
	ended           bool   // guarded by mu
}

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
		s.once()
	}
}

func (s *syncer) once() {
	s.mu.Lock()
	s.armed = false
	target := s.written
	idle := target == s.synced || s.err != nil
	s.mu.Unlock()
	if idle {
		return
	}
	err := s.call()
	s.mu.Lock()
	s.synced = target
	if err != nil {
		s.err = err
	}
	s.mu.Unlock()
	s.changed.Broadcast()
}

// wrote says that a record was written, and with each waits until the disk has it.
func (s *syncer) wrote(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = max(s.written, seq)
	if s.ended {
		return errClosed
	}
	s.ask()
	for s.each && s.synced < seq && s.err == nil {
		s.changed.Wait()
	}
	return s.err
}

// ask has the goroutine begin: at once, or when a group has gathered. The caller holds s.mu.
func (s *syncer) ask() {
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

// failure says whether the disk ever failed to take something.
func (s *syncer) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail notes what another than the goroutine could not have the disk take.
func (s *syncer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.changed.Broadcast()
}

// end has the disk take the rest, and ends the goroutine.
func (s *syncer) end() error {
	s.mu.Lock()
	s.ended = true
	close(s.ending)
	s.mu.Unlock()
	<-s.done
	return s.failure()
}

// syncFile syncs the file that is written. Those before it were synced by who began the next.
func (l *Log) syncFile() error {
	l.mu.Lock()
	f := l.file
	l.mu.Unlock()
	return dataSync(f)
}

// dataSync is fdatasync(2), for a file that another goroutine may close meanwhile: then it was synced before.
func dataSync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	closed := raw.Control(func(fd uintptr) { err = unix.Fdatasync(int(fd)) })
	if closed != nil || err == nil {
		return nil
	}
	return fmt.Errorf("audit: the disk did not take %s: nothing is run that cannot be logged: %w", f.Name(), err)
}
