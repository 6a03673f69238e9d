package meter

import (
	"cmp"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/isolate/host"
)

// The kernel charges some of what a job's sockets, system call filters and directories hold to no cgroup: replies that wait in netlink
// sockets, connections that nobody has accepted and the data in them, errors of UDP sockets, memberships in multicast groups, copies of
// filters, names that are being read. No limit of the kernel's bounds them together, and a system call filter cannot count. So this is
// polling, as for locks: first a cheap look at the kernel's memory of the whole host; if that has grown by ManyKernelBytes, a look at each
// job. What can be seen at once of a job does not wait until the tables of others have been read, and short tables are read first: a job
// with very many sockets, which takes long to read, must not hide one that uses up memory.
const (
	kernelInterval = 250 * time.Millisecond
	kernelUnknown  = 10 * time.Second // where the kernel does not report its memory

	// ManyKernelBytes is the growth of the kernel's memory on the host at which jobs are checked.
	ManyKernelBytes = 32 << 20

	// MaxKernelBytes is the maximum that a job may make the kernel hold uncharged: only a hostile or broken one has as much. A server
	// that accepts its connections has some kilobytes.
	MaxKernelBytes = 32 << 20

	// kernelAtOnce is how many jobs are checked in parallel. After a look at the jobs the watch rests kernelRest times as long as that
	// took: jobs that let the kernel's memory grow and shrink must not keep the supervisor busy. A rest of more than kernelMaxRest is no
	// longer than the look, because jobs with very many sockets make a look take seconds, and meanwhile others can use up memory.
	kernelAtOnce  = 2
	kernelRest    = 4
	kernelMaxRest = time.Second
)

// A KernelWatch ends jobs that make the kernel hold more than MaxKernelBytes which no cgroup is charged for.
type KernelWatch struct {
	// Growth of the kernel's memory on the host at which jobs are checked, in bytes; 0 means ManyKernelBytes. It must not change after the
	// first Watch.
	Growth int64
	// Walk measures the lists of names of a payer's open directories, see [probe.Prober.Walk]; nil: it is not known how long they are. It
	// must not change after the first Watch.
	Walk func(payer uint32, dir *os.File, patience time.Duration) (time.Duration, error)

	poll[*kernelHolder]
	base    int64     // guarded by mu: bytes when no job was over MaxKernelBytes, or the lowest since; 0: not known
	from    growth    // used by one read at a time
	names   int64     // guarded by mu: namesBytes at the time of base, or the lowest since; 0: not known
	reading bool      // guarded by mu: tables are being read
	rested  time.Time // guarded by mu: when tables may be read again
}

type kernelHolder struct {
	target
	pidfd    *os.File // a process in the job's network namespace
	group    Group
	payer    uint32
	maxTasks int64
	walk     walkTime
	seen     survey // guarded by target.mu: of the last look

	known        int64 // guarded by target.mu: bytes at the last read
	suspectFiles int   // guarded by target.mu: of the last read, see openFiles
	late         bool  // guarded by target.mu: of the last read, see openSize
}

// Watch starts watching a job of payer with at most maxTasks tasks. The process of pidfd is in the job's network namespace
// and ends after the job's other processes; end kills the job. Jobs can share the namespace: then each of them is judged
// by all that it holds. After stop returns, pidfd and group are not used any more; over reports whether the job was ended.
func (w *KernelWatch) Watch(pidfd *os.File, group Group, payer uint32, maxTasks int64, end func()) (stop func() (over bool)) {
	h := &kernelHolder{target: target{end: end}, pidfd: pidfd, group: group, payer: payer, maxTasks: maxTasks}
	if w.Walk != nil {
		h.walk = func(dir *os.File) (time.Duration, error) { return w.Walk(payer, dir, tablesPatience) }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.add(h, kernelInterval, w.look) {
		w.base, w.names = 0, 0 // the memory may have shrunk while nobody looked: the first look checks the jobs
	}
	return func() bool {
		w.remove(h)
		return h.release()
	}
}

// look ends the jobs that hold too much, and schedules itself again.
func (w *KernelWatch) look() {
	next := kernelInterval
	n, err := kernelBytes()
	if err != nil {
		next, n = kernelUnknown, math.MaxInt64
	}
	names := namesBytes("/proc/slabinfo")
	w.mu.Lock()
	w.base, w.names = min(w.base, n), min(w.names, names)
	base := w.names
	var all []*kernelHolder
	if most := cmp.Or(w.Growth, ManyKernelBytes); n-w.base > most || names-w.names > most { // other memory can have shrunk meanwhile
		all = w.jobs()
	}
	w.mu.Unlock()
	begin := time.Now()
	blameless := allBlameless(all, kernelAtOnce, func(h *kernelHolder) bool { return h.check((*kernelHolder).look) })
	next = max(next, restAfter(time.Since(begin)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(all) > 0 && !w.reading && time.Now().After(w.rested) {
		w.reading = true
		go w.read(all, n, names, base, blameless && err == nil)
	}
	w.again(next)
}

// read reads the tables of all jobs, after a look at them. n is what the kernel of the host used before and names what it used for names;
// base is w.names of then. If blameless and if no job is to blame for the tables or for the growth, n and names become the base. A job that
// is started after another was blamed for growth is not blamed for that as well: until then no base is known.
func (w *KernelWatch) read(all []*kernelHolder, n, names, base int64, blameless bool) {
	begin := time.Now()
	blameless = readTables(all) && blameless
	suspected := blameless && !w.from.endSuspect(all, names, base)
	end := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading, w.rested = false, end.Add(restAfter(end.Sub(begin)))
	switch {
	case suspected:
		w.names = 0
	case blameless:
		w.base, w.names = n, names
	}
}

// restAfter returns how long the watch rests after a look at the jobs that took a time.
func restAfter(look time.Duration) time.Duration {
	return min(kernelRest*look, max(look, kernelMaxRest))
}

// kernelBytes returns what the kernel of the host uses for objects, filters and the data of TCP connections. Reading it walks no list.
func kernelBytes() (int64, error) {
	var sum int64
	err := readLines("/proc/meminfo", func(line string) error {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "SUnreclaim:" || f[0] == "VmallocUsed:") {
			n, err := strconv.ParseInt(f[1], 10, 64)
			sum += n << 10
			return err
		}
		return nil
	})
	if err == nil && sum == 0 {
		err = errors.New("/proc/meminfo has no SUnreclaim")
	}
	if err == nil { // without networking in the kernel there is no such file, and no such memory
		_ = readLines("/proc/self/net/sockstat", func(line string) error {
			sum += statOf(line, "TCP:", "mem") * int64(os.Getpagesize())
			return nil
		})
	}
	return sum, err
}

// readTables reads the tables of each job, the short ones first, and reports whether no job is to blame.
func readTables(all []*kernelHolder) bool {
	sockets := map[*kernelHolder]int64{}
	for _, h := range all {
		sockets[h] = h.lines()
	}
	slices.SortFunc(all, func(a, b *kernelHolder) int { return cmp.Compare(sockets[a], sockets[b]) })
	return allBlameless(all, kernelAtOnce, func(h *kernelHolder) bool { return h.check((*kernelHolder).read) })
}

// lines returns how many lines the tables of the job have.
func (h *kernelHolder) lines() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen.sockets
}

// check ends the job if what bytes returns is too much or an error, and reports whether it is not. It reads nothing of a job that has
// ended or was ended. Nothing of this waits for a process: the kernel answers from its own memory.
func (h *kernelHolder) check(bytes func(h *kernelHolder, pid int) (int64, error)) (blameless bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return true
	}
	if h.over { // the kernel is still ending it
		return false
	}
	pid, err := host.PidOf(h.pidfd)
	n := int64(0)
	if err == nil {
		n, err = bytes(h, pid)
	}
	// A number that was reused meanwhile belongs to another process. As long as this one has not ended, it was not.
	if err == nil && n <= MaxKernelBytes || host.SomethingToRead(h.pidfd) {
		return true
	}
	h.over = true
	h.end()
	return false
}

// look returns what can be seen at once of what the job holds, and remembers what read has to read.
func (h *kernelHolder) look(pid int) (n int64, err error) {
	h.seen, err = surveyOf("/proc/" + strconv.Itoa(pid) + "/net/")
	return h.seen.uncharged, err
}

// read returns what the job holds, filters and open files included. It is called after look.
func (h *kernelHolder) read(pid int) (int64, error) {
	n, err := h.seen.bytes()
	if err != nil || n > MaxKernelBytes {
		return n, err
	}
	more, err := filterBytes(h.group, h.maxTasks)
	if n += more; err != nil || n > MaxKernelBytes {
		return n, err
	}
	open, err := openFilesOf(h.group, h.maxTasks, h.walk, h.end)
	h.known, h.suspectFiles, h.late = n+open.bytes, open.layered+open.queued, open.late
	return h.known, err
}
