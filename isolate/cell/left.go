package cell

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corral/cgroup"
	"corral/internal/fault"
)

// A descriptor that a job has passed on over a unix socket outlives the job, and so does the memory that it refers to: a
// memfd, files of the job's /tmp, data in sockets and pipes. The kernel charges that memory to the group of the job that wrote it,
// never to the process that holds it. So a job with a limit of 64 MiB could gather memory without bound from short jobs that write and
// pass it on. Therefore a job counts as running, against the maximum of its user, until its memory is free.

// leftMin is the size in bytes up to which memory that is left counts as none: the kernel's statistics are not exact, and it frees
// namespaces, of some 150 KiB, after their processes have ended.
const leftMin = 256 << 10

// Intervals of looking at memory that is left. The first one is as long as the kernel may take to free the private
// directories of an ended job.
const (
	leftFirst = 100 * time.Millisecond
	leftLater = time.Second
	leftRest  = time.Minute // the maximum for memory that may be reclaimable
	// leftReclaims is the maximum number of looks from one attempt to reclaim to the next.
	leftReclaims = 64
)

// LeftKind says what is known about memory that an ended job left.
type LeftKind int

const (
	// LeftNothing is memory that is free.
	LeftNothing LeftKind = iota
	// LeftUnknown is kernel memory that may be reclaimable: mostly entries of its caches of directories and inodes. To find out is
	// to lose them, and the job's cached files, which the next job reads again. So it is found out only if they are too much.
	LeftUnknown
	// LeftKernel is what the kernel could not reclaim. A process can hold it: data in sockets and pipes. Or it is still in use by
	// others without anybody's intent, such as an inode in a directory that another job watches.
	LeftKernel
	// LeftShared is in memory files or files of the job's /tmp. A process holds it.
	LeftShared
)

// A LeftSetter is told what an ended job has left, whenever that changes, with its size in bytes. It returns whether ended jobs
// have left so much that the kernel has to reclaim what it can.
type LeftSetter func(kind LeftKind, bytes int64) (reclaim bool)

// leftGroup is the part of a job's cgroup that leftMemory uses.
type leftGroup interface {
	Left() (cgroup.Left, error)
	Reclaim() error
}

// A leftMemory finds out whether other processes hold memory of an ended job.
type leftMemory struct {
	group leftGroup
	least func() int64      // the size in bytes up to which memory that is left counts as none
	later time.Duration     // from one look to the next, see leftLater
	count func() LeftSetter // see Slot.CountLeft; nil without a job
}

// left returns what the ended job has left, after some attempts to reclaim it. What is dirty or was used lately is reclaimed by the
// second one: the rest stays LeftKernel from then on, because a job must not count as ended while it is looked at again.
func (l *leftMemory) left(attempts int) (LeftKind, int64) {
	left, err := l.group.Left()
	switch {
	case err != nil || left.Sum() <= l.least():
		return LeftNothing, 0
	case left.Shared > leftMin:
		return LeftShared, left.Sum()
	case attempts > 1:
		return LeftKernel, left.Sum()
	}
	return LeftUnknown, left.Sum()
}

// some reports whether other processes may hold memory of the job.
func (l *leftMemory) some() bool {
	if l.count == nil {
		return false
	}
	kind, _ := l.left(0)
	return kind != LeftNothing
}

// await returns when no process holds memory of the job any more, or ctx ends. The job counts until freed is called.
// Reclaiming can take a second, so mu is locked for it.
func (l *leftMemory) await(ctx context.Context, mu *fault.Mutex) (freed func()) {
	set := l.count()
	freed = func() { set(LeftNothing, 0) }
	attempts, again := 0, 0 // to reclaim, and the number of the look for the next attempt
	for look, wait := 0, leftFirst; ; look++ {
		select {
		case <-ctx.Done():
			return freed
		case <-time.After(wait):
		}
		wait = min(max(2*wait, l.later), leftRest)
		kind, n := l.left(attempts)
		if (kind == LeftUnknown || kind == LeftKernel) && set(kind, n) {
			wait = l.later
			if look >= again {
				attempts++
				kind, n = l.reclaimed(mu, attempts)
				again = min(max(2*look, look+1), look+leftReclaims)
			}
		}
		switch kind {
		case LeftNothing:
			return freed
		case LeftShared, LeftKernel:
			wait = l.later
		}
		set(kind, n)
	}
}

// reclaimed returns what is left when the kernel has reclaimed what it can.
func (l *leftMemory) reclaimed(mu *fault.Mutex, attempts int) (LeftKind, int64) {
	mu.Lock()
	defer mu.Unlock()
	_ = l.group.Reclaim() // what could not be reclaimed is seen next
	return l.left(attempts)
}

// leavers are the slots of a jail whose jobs have left memory. The jail's end does not wait for them, except for the removal
// of its groups.
type leavers struct {
	n       atomic.Int64
	wg      sync.WaitGroup
	reclaim fault.Mutex // held while the kernel reclaims what one of them left
	small   smallLeft
}

// add calls f, which waits for one slot's memory, in the background.
func (l *leavers) add(log *slog.Logger, f func()) {
	l.n.Add(1)
	l.wg.Go(func() {
		defer l.n.Add(-1)
		fault.Do(log, "memory left by a job", f)
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
