package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// A source is a file that a job's account is read from.
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

// A sourceFile is where a layout has a source: the hierarchy's controller, as Tree.point takes it, and the file.
type sourceFile struct{ controller, name string }

// sourceFiles is what each layout has. A kernel may lack some of it.
var sourceFiles = map[string][sources]sourceFile{
	"v2": {
		cpuTime:      {"cgroup", "cpu.stat"},
		memoryPeak:   {"memory", "memory.peak"},
		memoryEvents: {"memory", "memory.events"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
		ioBytes:      {"io", "io.stat"},
	},
	// Every group of a unified hierarchy has cpu.stat. It counts from before the v1 controllers were joined.
	"hybrid": {
		cpuTime:      {"cgroup", "cpu.stat"},
		memoryPeak:   {"memory", "memory.max_usage_in_bytes"},
		memoryEvents: {"memory", "memory.oom_control"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
		ioBytes:      {"blkio", "blkio.throttle.io_service_bytes"},
	},
	"v1": {
		cpuTime:      {"cpuacct", "cpuacct.usage"},
		cpuUser:      {"cpuacct", "cpuacct.usage_user"},
		cpuSystem:    {"cpuacct", "cpuacct.usage_sys"},
		memoryPeak:   {"memory", "memory.max_usage_in_bytes"},
		memoryEvents: {"memory", "memory.oom_control"},
		pidsPeak:     {"pids", "pids.peak"},
		pidsEvents:   {"pids", "pids.events"},
		ioBytes:      {"blkio", "blkio.throttle.io_service_bytes"},
	},
}

// A meter is a job's sources, open: pread(2) reads such a file anew each time, for a sixth of what opening, reading and
// closing it costs, and a job's result waits for it. It holds a descriptor for each source that there is, five on most
// hosts. The zero value is not ready: a source that is not there is -1.
type meter [sources]int

// openMeter opens what this layout and kernel have. blkio of v1 is read if the job is in it.
func (g *Job) openMeter() error {
	t := g.instance.tree
	for s, f := range sourceFiles[t.layout] {
		if f.name == "" || source(s) == ioBytes && t.layout != "v2" && !g.io || t.point(f.controller) == "" {
			continue
		}
		fd, err := g.in(f.controller).open(f.name, unix.O_RDONLY)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		g.meter[s] = fd
	}
	return nil
}

// newMeter is a meter with nothing open.
func newMeter() meter {
	var m meter
	for s := range m {
		m[s] = -1
	}
	return m
}

// close may be called again.
func (m *meter) close() {
	for s, fd := range m {
		if fd >= 0 {
			_ = unix.Close(fd)
			m[s] = -1
		}
	}
}

// read reads a source into buf, or into more room.
func (m *meter) read(s source, buf []byte) ([]byte, error) {
	if m[s] < 0 {
		return nil, fs.ErrNotExist
	}
	return readOn(m[s], buf, false)
}

// number reads a source that is one number, -1 if it is not there.
func (m *meter) number(s source, buf []byte) int64 {
	b, err := m.read(s, buf)
	if err != nil {
		return -1
	}
	return number(b)
}

// Usage is what a job has used since its groups were made. A number that this kernel does not give is -1.
type Usage struct {
	// CPU is the time on all CPUs together. User and System are its parts; on v1 the kernel counts them in ticks, so that
	// they may add up to a little more or less.
	CPU, User, System time.Duration
	// PeakMemory is the most memory at any time, in bytes, as MemoryBytes counts it. Unknown on v2 before Linux 5.19.
	PeakMemory int64
	// PeakPIDs is the most processes and threads at any time. Unknown where there is no pids.peak: it is not sampled,
	// since a sample would miss what a job that ends soon had.
	PeakPIDs int64
	// IORead and IOWrite are bytes read from and written to disks, not to page cache. Known on v2 with the io
	// controller; on v1 and hybrid for a job with an I/O weight.
	IORead, IOWrite int64
}

// Events are counts since the job's groups were made.
type Events struct {
	// OOMKills is the number of processes that the kernel killed for want of memory. On v2 all of the job's count. On v1
	// and hybrid only those that the kernel chose count, and none if [Job.WatchOOM]'s function was quicker.
	OOMKills int64
	// OOM is set when the job reached its memory limit and nothing could be reclaimed.
	OOM bool
	// PIDsMax is how often a fork was refused. Zero where there is no pids.events.
	PIDsMax int64
}

// Account reads what the job has used and what happened to it, each of five files or so once. It may be called while
// the job runs, and after its end up to [Job.Remove]. With an error, what could be read is there, other usage is -1
// and other counts are zero.
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

// readCPU takes the CPU time from cpu.stat, or else from cpuacct if that is mounted.
func (g *Job) readCPU(u *Usage, buf []byte) error {
	if g.instance.tree.unified == "" {
		u.CPU = time.Duration(g.meter.number(cpuTime, buf))
		u.User = time.Duration(g.meter.number(cpuUser, buf))
		u.System = time.Duration(g.meter.number(cpuSystem, buf))
		return nil
	}
	b, err := g.meter.read(cpuTime, buf)
	if err != nil {
		return fmt.Errorf("read cpu.stat of %s: %w", g.dirs[0].path, err)
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

// readIO adds up the bytes over the disks. In io.stat a line is "8:0 rbytes=4096 wbytes=0 …", in the file of v1
// "8:0 Read 4096".
func (g *Job) readIO(u *Usage, buf []byte) error {
	b, err := g.meter.read(ioBytes, buf)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read bytes of I/O of %s: %w", g.dirs[0].path, err)
	}
	u.IORead, u.IOWrite = 0, 0
	var last, word []byte
	for len(b) > 0 {
		last = word
		word, b = cutWord(b)
		name, value, ok := bytes.Cut(word, []byte{'='})
		if !ok {
			name, value = last, word
		}
		switch string(name) {
		case "rbytes", "Read":
			u.IORead += max(0, number(value))
		case "wbytes", "Write":
			u.IOWrite += max(0, number(value))
		}
	}
	return nil
}

// cutWord returns the text up to the first space or end of line, and the rest after that. (bytes.Fields would have the
// buffer on the heap.)
func cutWord(text []byte) (word, rest []byte) {
	n := bytes.IndexAny(text, " \n")
	if n < 0 {
		return text, nil
	}
	return text[:n], text[n+1:]
}

// readOOM reads the counts of memory.events or memory.oom_control. The latter has one since Linux 4.13.
func (g *Job) readOOM(e *Events, buf []byte) error {
	b, err := g.meter.read(memoryEvents, buf)
	kills := valueOf(b, "oom_kill")
	if err == nil && kills < 0 {
		err = errors.New("no count of kills")
	}
	e.OOMKills = max(0, kills)
	e.OOM = kills > 0 || g.oom.Load() || valueOf(b, "oom") > 0
	if err != nil {
		return fmt.Errorf("read events of memory of %s: %w", g.in("memory").path, err)
	}
	return nil
}

// in returns the job's group in the hierarchy of a controller, "cgroup" for the unified one.
func (g *Job) in(controller string) group {
	point := g.instance.tree.point(controller)
	for _, d := range g.dirs {
		if d.point == point {
			return d
		}
	}
	return nowhere()
}
