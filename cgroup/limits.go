package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// ErrUnsupported is returned, wrapped, for a limit that this host cannot enforce.
var ErrUnsupported = errors.New("this host cannot enforce it")

// Limits bound a job. Zero means no limit.
type Limits struct {
	// MemoryBytes limits memory: that of the job's processes, page cache and kernel memory. Swap is limited to zero
	// with it. When the limit is reached and nothing can be reclaimed, the whole job is killed, by the kernel on v2,
	// with the help of [Job.WatchOOM] on v1. memory.max and memory.oom.group in the kernel's cgroup-v2 document,
	// memory.limit_in_bytes in cgroup-v1/memory.
	MemoryBytes int64
	// MilliCPUs is the CPU time per elapsed time in thousandths: 1500 is one and a half CPUs. The quota applies to
	// periods of 100 ms, or of 1 s for values below 10, since the kernel's minimum quota is 1 ms. cpu.max,
	// cpu.cfs_quota_us.
	MilliCPUs int64
	// PIDs limits the number of processes and threads; beyond it fork fails with EAGAIN. pids.max.
	PIDs int64
}

func (l Limits) check(i *Instance) error {
	if l.MemoryBytes < 0 || l.MilliCPUs < 0 || l.PIDs < 0 {
		return fmt.Errorf("a limit is negative: %+v", l)
	}
	if l.MemoryBytes != 0 && !i.has.swap && swapInUse() {
		return fmt.Errorf("memory: swap is not accounted: %w (hint: boot with swapaccount=1, or swapoff -a)", ErrUnsupported)
	}
	return nil
}

// swapInUse reports whether the host has swap space: /proc/swaps lists it below a header line.
func swapInUse() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}

// defaultPeriod is the CPU period of a new group in microseconds (kernel/sched/fair.c, default_cfs_period).
const defaultPeriod = 100_000

// quota returns the values for cpu.max, in microseconds.
func (l Limits) quota() (quota int64, period uint64) {
	period = defaultPeriod
	if l.MilliCPUs < 10 {
		period = 1_000_000
	}
	return l.MilliCPUs * int64(period) / 1000, period
}

// Update changes the limits; zero lifts a limit. The change is not atomic across kinds of limits.
//
// A lower memory limit makes the kernel reclaim. If that does not suffice, v2 kills the job; v1 leaves the limit
// unchanged and the error wraps EBUSY.
func (g *Job) Update(l Limits) error {
	if err := l.check(g.instance); err != nil {
		return err
	}
	if err := g.set(l, true); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	return nil
}

// set sets limits. A new group has none, so zero limits are written only to lift them.
func (g *Job) set(l Limits, lift bool) error {
	if g.instance.tree.layout == "v2" {
		return g.setV2(l, lift)
	}
	return write(l.v1(g.instance.has.swap, lift), g.in)
}

// write sets limits in the groups that in returns for controllers.
func write(list []v1Limit, in func(controller string) group) error {
	for _, f := range list {
		if err := in(f.controller).Write(f.name, f.value); err != nil && !f.try {
			return err
		}
	}
	return nil
}

// v2 converts the limits for containerd's cgroup2.
func (l Limits) v2(swap, lift bool) *cgroup2.Resources {
	r := &cgroup2.Resources{}
	if l.MemoryBytes != 0 {
		r.Memory = &cgroup2.Memory{Max: &l.MemoryBytes, OOMGroup: new(true)}
		if swap {
			r.Memory.Swap = new(int64)
		}
	} else if lift {
		r.Memory = &cgroup2.Memory{Max: new(int64(math.MaxInt64))}
		if swap {
			r.Memory.Swap = new(int64(math.MaxInt64))
		}
	}
	if l.MilliCPUs != 0 {
		quota, period := l.quota()
		r.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}
	} else if lift {
		r.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(nil, nil)}
	}
	if l.PIDs != 0 {
		r.Pids = &cgroup2.Pids{Max: l.PIDs}
	} else if lift {
		r.Pids = &cgroup2.Pids{Max: -1}
	}
	return r
}

func (g *Job) setV2(l Limits, lift bool) error {
	t := g.instance.tree
	m, err := cgroup2.Load(strings.TrimPrefix(g.dirs[0].Path, t.unified), cgroup2.WithMountpoint(t.unified))
	if err != nil {
		return err
	}
	return m.Update(l.v2(g.instance.has.swap, lift))
}

// A v1Limit is one file of a v1 controller and the value to write.
type v1Limit struct {
	controller, name, value string
	try                     bool // ignore errors
}

const tcpLimit = "memory.kmem.tcp.limit_in_bytes"

// v1 returns the values for the v1 files, in the order to write them. The kernel reads the largest number of bytes as
// no limit.
func (l Limits) v1(swap, lift bool) []v1Limit {
	var list []v1Limit
	add := func(controller, name string, value int64) {
		list = append(list, v1Limit{controller: controller, name: name, value: strconv.FormatInt(value, 10)})
	}
	if l.PIDs != 0 {
		add("pids", "pids.max", l.PIDs)
	} else if lift {
		list = append(list, v1Limit{controller: "pids", name: "pids.max", value: "max"})
	}
	if l.MilliCPUs != 0 {
		quota, period := l.quota()
		if lift || period != defaultPeriod {
			add("cpu", "cpu.cfs_period_us", int64(period))
		}
		add("cpu", "cpu.cfs_quota_us", quota)
	} else if lift {
		add("cpu", "cpu.cfs_quota_us", -1)
	}
	if l.MemoryBytes == 0 && !lift {
		return list
	}
	return append(list, v1Memory(l.MemoryBytes, swap, lift)...)
}

// v1Memory returns the values for a limit of memory, as v1 does; 0 lifts it.
func v1Memory(bytes int64, swap, lift bool) []v1Limit {
	if bytes == 0 {
		bytes = math.MaxInt64
	}
	limit := func(name string, try bool) v1Limit { return v1Limit{"memory", name, strconv.FormatInt(bytes, 10), try} }
	var list []v1Limit
	// memsw is memory and swap together, and the kernel requires it to be at least the memory limit. So a raise
	// begins with it; a lower value is refused there, and written after the memory limit is lowered.
	const memsw = memswPrefix + "limit_in_bytes"
	if swap && lift {
		list = append(list, limit(memsw, true))
	}
	list = append(list, limit("memory.limit_in_bytes", false))
	if swap {
		list = append(list, limit(memsw, false))
	}
	// v1 counts TCP and UDP buffers apart (cgroup-v1/memory.rst, 2.7.2); without this limit, jobs share those of the
	// host. Kernels without that accounting lack the file.
	return append(list, limit(tcpLimit, true))
}
