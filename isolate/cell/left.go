package cell

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A descriptor that a job has passed on over a unix socket outlives the job, and so does the memory that it refers to: a
// memfd, or files of the job's /tmp. The kernel charges that memory to the group of the job that wrote it, never to the
// process that holds it. So a job with a limit of 64 MiB could gather memory without bound from short jobs that write and
// pass it on. Therefore a job counts as running, against the maximum of its user, until its memory is free.

// leftMin is the size in bytes up to which memory that is left counts as none: the kernel's statistics are not exact.
const leftMin = 256 << 10

// Intervals of looking at memory that is left. The first one is as long as the kernel may take to free the private
// directories of an ended job.
const (
	leftFirst = 100 * time.Millisecond
	leftLater = time.Second
)

// A leftMemory finds out whether other processes hold memory of an ended job.
type leftMemory struct {
	shared func() (bytes int64, err error) // memory that is charged to the job's group and can be shared
	count  func() (freed func())           // see Slot.CountLeft; nil without a job
}

// some reports whether other processes may hold memory of the job.
func (l *leftMemory) some() bool {
	if l.count == nil {
		return false
	}
	n, err := l.shared()
	return err == nil && n > leftMin
}

// await returns when no process holds memory of the job any more, or ctx ends. The job counts until freed is called.
func (l *leftMemory) await(ctx context.Context) (freed func()) {
	freed = func() {}
	for wait := leftFirst; ; wait = leftLater {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if ctx.Err() != nil || !l.some() {
			return freed
		}
		if wait == leftFirst {
			freed = l.count()
		}
	}
}

// leavers are the slots of a jail whose jobs have left memory. The jail's end does not wait for them, except for the removal
// of its groups.
type leavers struct {
	n  atomic.Int64
	wg sync.WaitGroup
}

// add calls f, which waits for one slot's memory, in the background.
func (l *leavers) add(f func()) {
	l.n.Add(1)
	l.wg.Go(func() {
		defer l.n.Add(-1)
		f()
	})
}

// any reports whether memory is left.
func (l *leavers) any() bool { return l.n.Load() > 0 }

// then calls f when no memory is left: at once, or later in the background, which work tracks. No slot is added meanwhile.
func (l *leavers) then(work *sync.WaitGroup, f func()) {
	if !l.any() {
		f()
		return
	}
	work.Go(func() {
		l.wg.Wait()
		f()
	})
}
