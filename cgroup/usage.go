package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// A source identifies a file with resource usage of a job.
type source int

const (
	cpuTime source = iota
	cpuUser
	cpuSystem
	memoryPeak
	memoryEvents
	pidsPeak
	pidsEvents
	ioBytes
	sources
)

// A sourceFile locates a source: the controller, as accepted by Tree.point, and the file name.
type sourceFile struct{ controller, name string }

// sourceFiles lists the sources of each layout. A kernel may lack some of them.
var sourceFiles = map[string][sources]sourceFile{
	"v2": {
		cpuTime:      {"cgroup", "cpu.stat"},
		memoryPeak:   {"memory", "memory.peak"},
		memoryEvents: {"memory", "memory.events"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
		ioBytes:      {"io", "io.stat"},
	},
	// Every group of a unified hierarchy has cpu.stat. It starts counting before the v1 controllers are joined.
	"hybrid": {
		cpuTime:      {"cgroup", "cpu.stat"},
		memoryPeak:   {"memory", "memory.max_usage_in_bytes"},
		memoryEvents: {"memory", "memory.oom_control"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
	},
	"v1": {
		cpuTime:      {"cpuacct", "cpuacct.usage"},
		cpuUser:      {"cpuacct", "cpuacct.usage_user"},
		cpuSystem:    {"cpuacct", "cpuacct.usage_sys"},
		memoryPeak:   {"memory", "memory.max_usage_in_bytes"},
		memoryEvents: {"memory", "memory.oom_control"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
	},
}

// A meter holds a job's sources open: pread(2) returns fresh values each time, for a sixth of the cost of open, read
// and close, and a job's result waits for it. It holds a descriptor for each source of the host, five on most. A
// missing source is -1, so use newMeter; the zero value is not valid.
type meter [sources]int

// openMeter opens the sources that this layout and kernel have.
func (g *Job) openMeter() error {
	t := g.instance.tree
	for s, f := range sourceFiles[t.layout] {
		if f.name == "" || t.point(f.controller) == "" {
			continue
		}
		fd, err := g.in(f.controller).Open(f.name, unix.O_RDONLY)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		g.meter[s] = fd
	}
	return nil
}

func newMeter() meter {
	var m meter
	for s := range m {
		m[s] = -1
	}
	return m
}

// close closes all sources. It may be called more than once.
func (m *meter) close() {
	for s, fd := range m {
		if fd >= 0 {
			_ = unix.Close(fd)
			m[s] = -1
		}
	}
}

// read reads a source into buf, or into a larger buffer if necessary.
func (m *meter) read(s source, buf []byte) ([]byte, error) {
	if m[s] < 0 {
		return nil, fs.ErrNotExist
	}
	return readOn(m[s], buf, false)
}

// number reads a source that consists of one number. It returns -1 if the source is missing.
func (m *meter) number(s source, buf []byte) int64 {
	b, err := m.read(s, buf)
	if err != nil {
		return -1
	}
	return number(b)
}

// Usage is the resource usage of a job since its groups were created. A value that this kernel does not provide is -1.
type Usage struct {
	// CPU is the total time on all CPUs. User and System are its parts; on v1 the kernel counts them in ticks, so
	// their sum may differ a little.
	CPU, User, System time.Duration
	// PeakMemory is the maximum memory usage in bytes, counted as for MemoryBytes. Unknown on v2 before Linux 5.19.
	PeakMemory int64
	// PeakPIDs is the maximum number of processes and threads. Unknown without pids.peak: it is not sampled, since a
	// sample would miss the peak of a short job.
	PeakPIDs int64
	// IORead and IOWrite are bytes read from and written to disks, not to the page cache. Known on v2 with the io
	// controller; on v1 and hybrid unknown, since no job joins the blkio hierarchy: each hierarchy costs a mkdir, an
	// attach and a removal.
	IORead, IOWrite int64
}

// Events counts events since the job's groups were created.
type Events struct {
	// OOMKills is the number of processes that the kernel killed because the job was out of memory. On v2 all
	// processes of the job count. On v1 and hybrid only those chosen by the kernel count, and none if the callback of
	// [Job.WatchOOM] killed them first.
	OOMKills int64
	// OOM is set if the job reached its memory limit and nothing could be reclaimed, or if the kernel killed processes of it for lack of
	// memory elsewhere.
	OOM bool
	// UserLimit is, with OOM, the limit in bytes of all jobs of the user (see [Instance.LimitUsers]) if that was reached; else 0.
	UserLimit int64
	// PIDsMax is the number of refused forks. Zero without pids.events.
	PIDsMax int64
}

// Account reads the usage and the events of the job, about five files once each. It may be called while the job runs,
// and afterwards until [Job.Remove]. With an error, the values that could be read are set; other usage is -1 and
// other counts are zero.
func (g *Job) Account() (Usage, Events, error) {
	var room [1024]byte
	buf := room[:]
	u := Usage{
		PeakMemory: g.meter.number(memoryPeak, buf), PeakPIDs: g.meter.number(pidsPeak, buf),
		CPU: -1, User: -1, System: -1, IORead: -1, IOWrite: -1,
	}
	var e Events
	if b, err := g.meter.read(pidsEvents, buf); err == nil {
		e.PIDsMax = max(0, valueOf(b, "max"))
	}
	var errs [3]error
	errs[0] = g.readCPU(&u, buf)
	errs[1] = g.readIO(&u, buf)
	errs[2] = g.readOOM(&e, buf)
	return u, e, errors.Join(errs[:]...)
}

// memoryFile returns the file with the memory that a group uses now, in bytes.
func (t *Tree) memoryFile() string {
	if t.layout == "v2" {
		return "memory.current"
	}
	return "memory.usage_in_bytes"
}

// Memory returns the memory that the job uses now in bytes, counted as for MemoryBytes, or -1 if it cannot be read. It opens the
// file each time: few jobs are ever looked at while they run, and one that is held open would cost every job.
func (g *Job) Memory() int64 {
	b, err := g.in("memory").Read(g.instance.tree.memoryFile())
	if err != nil {
		return -1
	}
	return number(b)
}

// readCPU reads the CPU time from cpu.stat, or from cpuacct on v1.
func (g *Job) readCPU(u *Usage, buf []byte) error {
	if g.instance.tree.unified == "" {
		u.CPU = time.Duration(g.meter.number(cpuTime, buf))
		u.User = time.Duration(g.meter.number(cpuUser, buf))
		u.System = time.Duration(g.meter.number(cpuSystem, buf))
		return nil
	}
	b, err := g.meter.read(cpuTime, buf)
	if err != nil {
		return fmt.Errorf("read cpu.stat of %s: %w", g.dirs[0].Path, err)
	}
	u.CPU = microseconds(valueOf(b, "usage_usec"))
	u.User = microseconds(valueOf(b, "user_usec"))
	u.System = microseconds(valueOf(b, "system_usec"))
	return nil
}

func microseconds(n int64) time.Duration {
	if n < 0 {
		return -1
	}
	return time.Duration(n) * time.Microsecond
}

// readIO adds up the bytes of all disks. A line of io.stat is "8:0 rbytes=4096 wbytes=0 …".
func (g *Job) readIO(u *Usage, buf []byte) error {
	b, err := g.meter.read(ioBytes, buf)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read I/O bytes of %s: %w", g.dirs[0].Path, err)
	}
	u.IORead, u.IOWrite = 0, 0
	for len(b) > 0 {
		var word []byte
		word, b = cutWord(b)
		name, value, _ := bytes.Cut(word, []byte{'='})
		switch string(name) {
		case "rbytes":
			u.IORead += max(0, number(value))
		case "wbytes":
			u.IOWrite += max(0, number(value))
		}
	}
	return nil
}

// cutWord returns the text up to the first space or end of line, and the rest after that. (bytes.Fields would move
// the buffer to the heap.)
func cutWord(text []byte) (word, rest []byte) {
	n := bytes.IndexAny(text, " \n")
	if n < 0 {
		return text, nil
	}
	return text[:n], text[n+1:]
}

// readOOM reads the counts of memory.events or memory.oom_control. The latter has a count only since Linux 4.13.
func (g *Job) readOOM(e *Events, buf []byte) error {
	b, err := g.meter.read(memoryEvents, buf)
	kills := valueOf(b, "oom_kill")
	if err == nil && kills < 0 {
		err = errors.New("no oom_kill count")
	}
	e.OOMKills = max(0, kills)
	own := valueOf(b, "oom") // v1 does not count them
	e.OOM = kills > 0 || own > 0
	if kills > 0 {
		e.UserLimit = g.userLimit(own)
	}
	if err != nil {
		return fmt.Errorf("read memory events of %s: %w", g.in("memory").Path, err)
	}
	return nil
}

// in returns the job's group in the hierarchy of a controller; "cgroup" stands for the unified one.
func (g *Job) in(controller string) group {
	point := g.instance.tree.point(controller)
	for _, d := range g.dirs {
		if d.Point == point {
			return d
		}
	}
	return noGroup()
}
