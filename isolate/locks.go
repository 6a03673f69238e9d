package isolate

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/isolate/wire"
)

// The kernel charges POSIX record locks (F_SETLK, fcntl(2)) to no cgroup, of 192 bytes each, and RLIMIT_LOCKS bounds nothing any
// more. A filter of system calls cannot count, and to refuse them would refuse SQLite. So this is a watch, not a wall: first a
// cheap look at how many lock records all of the host has; when these have grown by many, a look at the descriptors of each job.
// A process's lock is one of a file that it has open, and goes when that is closed; what it could do with locks of open
// file descriptions, which live on while they wait in a socket, is refused by the filter.
const (
	locksInterval = 250 * time.Millisecond
	locksUnknown  = 10 * time.Second // where the kernel does not tell how many there are

	// manyLocks are so many records, 50 MB, that jobs are looked at.
	manyLocks = 1 << 18

	// maxLocks are those of a job that may be: none but one that is hostile or broken has as many. 1,024 jobs have 2 GB of them.
	maxLocks = 10_000
)

// lockRecords is where the kernel tells how many there are, together with other records of their size. It counts no list for that.
const lockRecords = "/sys/kernel/slab/file_lock_cache/total_objects"

// A lockWatch ends jobs that have more locks than a job may have.
type lockWatch struct {
	mu      sync.Mutex
	watched map[*lockHolder]bool // guarded by mu
	timer   *time.Timer          // guarded by mu: runs look while there are jobs
	base    int                  // guarded by mu: how many records there were when no job was to blame, or fewer since
}

type lockHolder struct {
	slot *slot
	run  *run
	mu   sync.Mutex
	gone bool // guarded by mu: the slot is not to be used any more
	over bool // guarded by mu
}

// watch looks after a job. When stop returns, nobody uses the slot any more; over is that the job was ended.
func (w *lockWatch) watch(sl *slot, r *run) (stop func() (over bool)) {
	h := &lockHolder{slot: sl, run: r}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watched) == 0 {
		w.watched = map[*lockHolder]bool{}
		w.timer = time.AfterFunc(locksInterval, w.look)
	}
	w.watched[h] = true
	return func() bool {
		w.mu.Lock()
		delete(w.watched, h)
		if len(w.watched) == 0 {
			w.timer.Stop()
		}
		w.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gone = true
		return h.over
	}
}

// look ends the jobs that have too many locks, and comes again.
func (w *lockWatch) look() {
	next := locksInterval
	n, err := countLockRecords()
	if err != nil {
		next = locksUnknown
	}
	w.mu.Lock()
	w.base = min(w.base, n)
	var all []*lockHolder
	if err != nil || n > w.base+manyLocks {
		for h := range w.watched {
			all = append(all, h)
		}
	}
	w.mu.Unlock()
	ended := false
	for _, h := range all {
		ended = h.check() || ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(all) > 0 && !ended {
		w.base = n
	}
	if len(w.watched) > 0 {
		w.timer.Reset(next)
	}
}

// countLockRecords reads the first number of the kernel's line.
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

// check ends the job if it has too many locks, and says so. The job stands still meanwhile: else what holds its locks could be
// another process at each look.
func (h *lockHolder) check() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return false
	}
	thaw, _ := h.slot.group.Freeze()
	defer thaw() // the stub must see the end, whoever brings it about
	pids, err := h.slot.group.PIDs()
	if err == nil && !tooManyLocks(pids) {
		return false
	}
	h.over = true
	h.run.ask(wire.Vanished)
	return true
}

// tooManyLocks sums the locks of processes. More descriptors than are looked at count as too many locks.
func tooManyLocks(pids []int) bool {
	locks, left := 0, maxLookedAt
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
		f, err := os.Open(dir)
		if err != nil {
			continue // it has ended meanwhile
		}
		names, _ := f.Readdirnames(left + 1)
		f.Close()
		if left -= len(names); left < 0 {
			return true
		}
		for _, name := range names {
			if locks += locksIn(dir+"/"+name, maxLocks-locks); locks > maxLocks {
				return true
			}
		}
	}
	return false
}

// locksIn counts lines of a descriptor's locks (proc_pid_fdinfo(5)), to little more than most.
func locksIn(path string, most int) (locks int) {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 4096)
	for locks <= most {
		n, err := io.ReadFull(f, b)
		locks += bytes.Count(b[:n], []byte("\nlock:"))
		if err != nil {
			break
		}
	}
	return locks
}
