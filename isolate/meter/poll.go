package meter

import (
	"sync"
	"sync/atomic"
	"time"
)

// A poll calls a function again and again while there are jobs of type H to look at.
type poll[H comparable] struct {
	mu      sync.Mutex
	watched map[H]bool  // guarded by mu
	timer   *time.Timer // guarded by mu: calls the function while there are jobs
}

// add adds a job. If it is the first one, look is called after a time, and must then call again. The caller holds mu.
func (p *poll[H]) add(h H, after time.Duration, look func()) (first bool) {
	if first = len(p.watched) == 0; first {
		p.watched = map[H]bool{}
		p.timer = time.AfterFunc(after, look)
	}
	p.watched[h] = true
	return first
}

// remove removes a job.
func (p *poll[H]) remove(h H) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watched, h)
	if len(p.watched) == 0 {
		p.timer.Stop()
	}
}

// jobs returns all jobs. The caller holds mu.
func (p *poll[H]) jobs() []H {
	var all []H
	for h := range p.watched {
		all = append(all, h)
	}
	return all
}

// again calls the function after a time, if there are jobs. The caller holds mu.
func (p *poll[H]) again(after time.Duration) {
	if len(p.watched) > 0 {
		p.timer.Reset(after)
	}
}

// A target is a job of a poll.
type target struct {
	end  func() // ends the job; may be called several times
	mu   sync.Mutex
	gone bool // guarded by mu: nothing of the job must be used any more
	over bool // guarded by mu: the job was ended
}

// release returns when nobody uses the job any more, and reports whether it was ended.
func (t *target) release() (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	return t.over
}

// allBlameless calls check for each job, in the given order, atOnce at a time. It reports whether each of them was read in full and is
// not to blame.
func allBlameless[T any](all []T, atOnce int, check func(T) bool) bool {
	var blamed atomic.Bool
	var checks sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, h := range all {
		turns <- struct{}{}
		checks.Go(func() {
			if !check(h) {
				blamed.Store(true)
			}
			<-turns
		})
	}
	checks.Wait()
	return !blamed.Load()
}
