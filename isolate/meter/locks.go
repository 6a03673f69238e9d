package meter

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corral/internal/fault"
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

	// MaxLocks is the maximum number of locks of a job, 19 MB: only a hostile or broken one has as many.
	MaxLocks = 100_000

	// locksPatience is how long a look waits for jobs that cannot be read at once. kcmp(2) waits for a process that is in execve(2), which
	// can wait for another one that waits for a user's file system.
	locksPatience = 2 * time.Second

	// locksAtOnce is how many jobs are read in parallel.
	locksAtOnce = 64

	// locksRest is how many times as long as a look the watch rests after it, so that jobs with very many descriptors do not keep the
	// supervisor busy.
	locksRest = 4
)

// lockRecords is where the kernel reports the number of lock records together with other objects of their size.
// Reading it walks no list.
const lockRecords = "/sys/kernel/slab/file_lock_cache/total_objects"

// A Group is the cgroup of a job: *cgroup.Job, or a fake in tests.
type Group interface {
	// PIDs returns the processes of the group.
	PIDs() ([]int, error)
}

// A LockWatch ends jobs that have more than MaxLocks locks, as long as the host has many. A running job is not stopped to be read. A job
// that cannot be read is not ended.
type LockWatch struct {
	mu      fault.Mutex
	watched map[*lockHolder]bool // guarded by mu
	timer   *time.Timer          // guarded by mu: calls look while there are jobs
	base    int                  // guarded by mu: number of records when each job was read and none was over MaxLocks, or the lowest since
}

// A lockHolder is a job.
type lockHolder struct {
	group Group
	end   func()
	mu    sync.Mutex // held while the job is read
	gone  bool       // guarded by mu: nothing of the job must be used any more
}

// Watch starts watching a job; end kills it, and may be called several times. After stop returns, neither is used any more.
func (w *LockWatch) Watch(group Group, end func()) (stop func()) {
	h := &lockHolder{group: group, end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watched) == 0 {
		w.watched = map[*lockHolder]bool{}
		w.timer = time.AfterFunc(locksInterval, w.look)
	}
	w.watched[h] = true
	return func() { w.remove(h) }
}

func (w *LockWatch) remove(h *lockHolder) {
	fault.With(&w.mu, func() {
		delete(w.watched, h)
		if len(w.watched) == 0 {
			w.timer.Stop()
		}
	})
	h.mu.Lock() // the end of the job lets a look at it return
	defer h.mu.Unlock()
	h.gone = true
}

// look ends the jobs that have too many locks, and schedules itself again.
func (w *LockWatch) look() {
	next := locksInterval
	n, err := countLockRecords()
	if err != nil {
		next = locksUnknown
	}
	var all []*lockHolder
	fault.With(&w.mu, func() {
		w.base = min(w.base, n)
		if err != nil || n > w.base+ManyLocks {
			for h := range w.watched {
				all = append(all, h)
			}
		}
	})
	begin := time.Now()
	few := len(all) > 0 && allHaveFew(all)
	w.mu.Lock()
	defer w.mu.Unlock()
	if few {
		w.base = n
	}
	if len(w.watched) > 0 {
		w.timer.Reset(max(next, locksRest*time.Since(begin)))
	}
}

// allHaveFew checks each job, and reports whether each was read in full within locksPatience and has few locks.
func allHaveFew(all []*lockHolder) bool {
	var unsure atomic.Bool
	var checks sync.WaitGroup
	turns := make(chan struct{}, locksAtOnce)
	for _, h := range all {
		checks.Go(func() {
			turns <- struct{}{}
			if !h.check() {
				unsure.Store(true)
			}
			<-turns
		})
	}
	done := make(chan struct{})
	go func() {
		checks.Wait()
		close(done)
	}()
	select {
	case <-done:
		return !unsure.Load()
	case <-time.After(locksPatience):
		return false
	}
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

// check ends the job if it has too many locks, and reports whether all of it was read and it has few.
func (h *lockHolder) check() (few bool) {
	if !h.mu.TryLock() {
		return false // an earlier look still reads it, or it is ending
	}
	defer h.mu.Unlock()
	if h.gone {
		return true
	}
	locks, err := h.count()
	if locks > MaxLocks {
		locks, err = h.count() // locks that went from one process to another while they were counted may count twice
	}
	if locks > MaxLocks {
		h.end()
		return false
	}
	return err == nil
}

// count returns how many locks the job's processes have, no more than a few above MaxLocks. With an error, not all were counted.
func (h *lockHolder) count() (locks int, err error) {
	pids, err := h.group.PIDs()
	if err != nil {
		return 0, err
	}
	err = walkTables(pids, func(task, name string) error {
		n, err := locksIn(task+"/fdinfo/"+name, MaxLocks-locks)
		if locks += n; locks > MaxLocks {
			return errTooManyLocks
		}
		return err
	})
	return locks, err
}

var errTooManyLocks = errors.New("more locks than a job may have")

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
