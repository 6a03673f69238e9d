package meter

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// The kernel charges POSIX record locks (F_SETLK, fcntl(2)), 192 bytes each, to no cgroup, and RLIMIT_LOCKS no longer has an effect.
// A system call filter cannot count, and refusing them would break SQLite. So this is polling, and a job can overrun it for a
// moment: first a cheap check of how many lock records the whole host has; if that number has grown by ManyLocks, a check of the
// descriptors of each job. A lock belongs to a descriptor table, and is released when that table closes the file. The filter refuses
// locks of open file descriptions, which would survive in a descriptor queued in a socket.
const (
	locksInterval = 250 * time.Millisecond
	locksUnknown  = 10 * time.Second // where the kernel does not report the number

	// ManyLocks is the growth in records, 50 MB, at which jobs are checked.
	ManyLocks = 1 << 18

	// MaxLocks is the maximum number of locks of a job: only a hostile or broken one has as many. 1,024 jobs have 2 GB
	// of them.
	MaxLocks = 10_000

	// locksAtOnce is how many jobs are checked in parallel, so that none waits long for others that use up their tablesPatience.
	locksAtOnce = 64
)

// lockRecords is where the kernel reports the number of lock records together with other objects of their size.
// Reading it walks no list.
const lockRecords = "/sys/kernel/slab/file_lock_cache/total_objects"

// A LockWatch ends jobs that have more than MaxLocks locks.
type LockWatch struct {
	poll[*lockHolder]
	base int // guarded by mu: number of records when no job was over MaxLocks, or the lowest since
}

type lockHolder struct {
	target
	group    Group
	maxTasks int64
}

// Watch starts watching a job with at most maxTasks tasks; end kills the job. After stop returns, the group is not used any
// more; over reports whether the job was ended.
func (w *LockWatch) Watch(group Group, maxTasks int64, end func()) (stop func() (over bool)) {
	h := &lockHolder{target: target{end: end}, group: group, maxTasks: maxTasks}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(h, locksInterval, w.look)
	return func() bool {
		w.remove(h)
		return h.release()
	}
}

// look ends the jobs that have too many locks, and schedules itself again.
func (w *LockWatch) look() {
	next := locksInterval
	n, err := countLockRecords()
	if err != nil {
		next = locksUnknown
	}
	w.mu.Lock()
	w.base = min(w.base, n)
	var all []*lockHolder
	if err != nil || n > w.base+ManyLocks {
		all = w.jobs()
	}
	w.mu.Unlock()
	blameless := allBlameless(all, locksAtOnce, (*lockHolder).check)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(all) > 0 && blameless {
		w.base = n
	}
	w.again(next)
}

// countLockRecords returns the first number in lockRecords.
func countLockRecords() (int, error) {
	f, err := os.Open(lockRecords)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.Read(b)
	if err != nil {
		return 0, err
	}
	word, _, _ := strings.Cut(string(b[:n]), " ")
	return strconv.Atoi(strings.TrimSpace(word))
}

// check ends the job if it has too many locks, or cannot be read. The job is frozen meanwhile: otherwise a different process could
// hold the locks at each look. It reports whether all of the job was frozen and has few locks.
func (h *lockHolder) check() (blameless bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return true
	}
	thaw, frozen := h.group.Freeze()
	defer thaw() // the stub must see the end, whoever requests it
	late := time.AfterFunc(tablesPatience, h.end)
	pids, err := h.group.PIDs()
	few := err == nil && !tooManyLocks(pids, h.maxTasks)
	if late.Stop() && few {
		return frozen
	}
	h.over = true
	h.end()
	return false
}

var errTooManyLocks = errors.New("more locks than a job may have")

// tooManyLocks reports whether the processes have more than MaxLocks locks in all. A table that cannot be read counts as too many
// locks, and so do more tasks or descriptors than walkTables reads.
func tooManyLocks(pids []int, maxTasks int64) bool {
	locks := 0
	return walkTables(pids, maxTasks, func(task string, names []string) error {
		for _, name := range names {
			n, err := locksIn(task+"/fdinfo/"+name, MaxLocks-locks)
			if err != nil {
				return err
			}
			if locks += n; locks > MaxLocks {
				return errTooManyLocks
			}
		}
		return nil
	}) != nil
}

// locksIn counts the locks of a descriptor (proc_pid_fdinfo(5)), and stops soon after limit. A descriptor that was closed has none.
func locksIn(path string, limit int) (locks int, err error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		b := make([]byte, 4096)
		for n := 0; err == nil && locks <= limit; {
			n, err = io.ReadFull(f, b)
			locks += bytes.Count(b[:n], []byte("\nlock:"))
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || goneMeanwhile(err) {
		err = nil
	}
	return locks, err
}
