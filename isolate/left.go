package isolate

import (
	"corral/isolate/cell"
	"corral/isolate/host"
)

// Other memory than shared memory that ended jobs of one user have left, and for which none of them counts as running. An ordinary
// job can leave some: the kernel does not reclaim inodes that it has not written yet, for half a minute, nor those that another job
// watches.
const (
	// maxUnknown is the maximum in bytes until the kernel was asked twice to reclaim it, within two seconds. That of a single job
	// never counts.
	maxUnknown = 512 << 20
	// The kernel is asked to reclaim memory if the jobs of a user have left more than pressUnknown bytes of it, if more than
	// pressLeaving jobs of a user have left memory, or more than pressAll jobs of all users: each of these jobs keeps its cgroup
	// and one of its jail's few user ids.
	pressUnknown = maxUnknown / 2
	pressLeaving = 16
	pressAll     = host.JobUIDs / 8
	// maxKernel is the maximum in bytes of what it did not reclaim, and maxLeaving the maximum of jobs that left any.
	maxKernel  = 256 << 20
	maxLeaving = 256
)

// leftSum is memory that ended jobs of a user have left, those that do not count as running.
type leftSum struct {
	jobs  int
	bytes [cell.LeftShared]int64 // by kind
}

// A leftJob is an ended job that has left memory.
type leftJob struct {
	kind   cell.LeftKind
	bytes  int64
	counts bool // as a running job
}

// leftovers is what ended jobs have left. Its owner's lock guards it.
type leftovers struct {
	maxKernel int64              // see the constant; constant
	press     int64              // pressUnknown; constant
	perUser   map[uint32]int     // jobs that count as running
	all       int                // the sum of perUser
	sums      map[uint32]leftSum // by user
}

func newLeftovers() leftovers {
	return leftovers{maxKernel: maxKernel, press: pressUnknown, perUser: map[uint32]int{}, sums: map[uint32]leftSum{}}
}

// change records what a job of a user has left now. It counts as running as long as its memory is shared, or if its user's jobs have left
// too much of another kind. It returns whether the kernel has to reclaim what it can.
func (t *leftovers) change(user uint32, l *leftJob, kind cell.LeftKind, bytes int64) (reclaim bool) {
	sum := t.sums[user]
	if l.kind != cell.LeftNothing && !l.counts {
		sum.jobs--
		sum.bytes[l.kind] -= l.bytes
	}
	l.kind, l.bytes = kind, bytes
	counts := t.overflows(sum, kind, bytes)
	if kind != cell.LeftNothing && !counts {
		sum.jobs++
		sum.bytes[kind] += bytes
	}
	if t.sums[user] = sum; sum.jobs == 0 {
		delete(t.sums, user)
	}
	switch {
	case counts && !l.counts:
		t.perUser[user]++
		t.all++
	case !counts && l.counts:
		decrement(t.perUser, user)
		t.all--
	}
	l.counts = counts
	return counts || sum.bytes[cell.LeftUnknown] > t.press || sum.jobs > pressLeaving || t.leaving() > pressAll
}

// leaving returns the number of jobs that have left memory and do not count as running.
func (t *leftovers) leaving() (n int) {
	for _, sum := range t.sums {
		n += sum.jobs
	}
	return n
}

// overflows reports whether a job counts as running that has left bytes of a kind besides the others of its user.
func (t *leftovers) overflows(others leftSum, kind cell.LeftKind, bytes int64) bool {
	switch kind {
	case cell.LeftShared:
		return true
	case cell.LeftKernel:
		return others.bytes[kind]+bytes > t.maxKernel || others.jobs >= maxLeaving
	case cell.LeftUnknown:
		return others.jobs > 0 && (others.bytes[kind]+bytes > maxUnknown || others.jobs >= maxLeaving)
	}
	return false
}

func decrement(counts map[uint32]int, user uint32) {
	if counts[user]--; counts[user] == 0 {
		delete(counts, user)
	}
}
