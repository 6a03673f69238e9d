package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// ErrUnsupported is returned, wrapped, for a limit that this host cannot enforce.
var ErrUnsupported = errors.New("this host cannot enforce it")

// Limits bound a job. Zero means no limit of that kind.
type Limits struct {
	// MemoryBytes bounds memory: what the job's processes use, page cache and kernel memory included, and with it swap,
	// of which the job gets none. When it is reached and nothing can be reclaimed the job is killed as a whole, by the
	// kernel on v2, with the help of [Job.WatchOOM] on v1. memory.max and memory.oom.group of the kernel's cgroup-v2
	// document, memory.limit_in_bytes of cgroup-v1/memory.
	MemoryBytes int64
	// MilliCPUs is the CPU time per time that passes, in thousandths: 1500 is one and a half CPUs. It is granted per
	// 100 ms, below 10 per second, as the kernel wants at least 1 ms each. cpu.max, cpu.cfs_quota_us.
	MilliCPUs int64
	// PIDs bounds the number of processes and threads; beyond it fork fails with EAGAIN. pids.max.
	PIDs int64
	// IOWeight is the share of a busy disk, 1 to 10000, where others have 100. It needs the kernel's io.weight (the
	// iocost controller, which is configured per disk), or the BFQ scheduler, which takes 1 to 1000.
	IOWeight uint16
}

// bfqMax is the highest weight of the BFQ scheduler.
const bfqMax = 1000

func (l Limits) check(i *Instance) error {
	if l.MemoryBytes < 0 || l.MilliCPUs < 0 || l.PIDs < 0 {
		return fmt.Errorf("a limit is negative: %+v", l)
	}
	if l.IOWeight > 10000 {
		return fmt.Errorf("I/O weight %d: 10000 is the most", l.IOWeight)
	}
	if l.IOWeight != 0 && i.tree.layout != "v2" && i.tree.v1["blkio"] == "" {
		return fmt.Errorf("I/O weight: %w (hint: mount the blkio controller)", ErrUnsupported)
	}
	if l.MemoryBytes != 0 && !i.has.swap && swapInUse() {
		return fmt.Errorf("memory: swap is not accounted: %w (hint: boot with swapaccount=1, or swapoff -a)", ErrUnsupported)
	}
	return nil
}

// swapInUse reports whether the host has swap space: /proc/swaps lists it below a line of titles.
func swapInUse() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}

// defaultPeriod is that of a new group, in microseconds (kernel/sched/fair.c, default_cfs_period).
const defaultPeriod = 100_000

// quota returns what cpu.max takes, in microseconds.
func (l Limits) quota() (quota int64, period uint64) {
	period = defaultPeriod
	if l.MilliCPUs < 10 {
		period = 1_000_000
	}
	return l.MilliCPUs * int64(period) / 1000, period
}

// Update changes the limits; zero lifts one. The change is not atomic over several kinds.
//
// A lower memory limit makes the kernel reclaim. If that does not suffice, v2 kills the job; v1 leaves the limit as it
// was and the error wraps EBUSY.
func (g *Job) Update(l Limits) error {
	if err := l.check(g.instance); err != nil {
		return err
	}
	if g.instance.tree.layout == "v2" {
		if err := g.setV2(l, true); err != nil {
			return fmt.Errorf("set limits: %w", err)
		}
		return nil
	}
	if l.IOWeight != 0 && !g.io {
		return fmt.Errorf("I/O weight of a job that was made without: %w", ErrUnsupported)
	}
	r := l.v1(g.instance.has.swap, true)
	if r.Memory.Swap != nil {
		// The kernel wants memory with swap never below memory. containerd 3.1.3 means to see to the order but always
		// writes memory first. So a raise is written here, and a lower value, which is refused here, is left to it.
		_ = write(filepath.Join(g.v1Dir("memory"), "memory.memsw.limit_in_bytes"), strconv.FormatInt(*r.Memory.Swap, 10))
	}
	err := g.v1.Update(r)
	if err == nil && l.PIDs == 0 {
		// It sets a limit but lifts none.
		err = write(filepath.Join(g.v1Dir("pids"), "pids.max"), "max")
	}
	if err == nil {
		err = g.setV1Weight(l, true)
	}
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	return nil
}

// v2 gives the limits as cgroup2 takes them. A new group has none, so zeros are for lifting one.
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

// loadV2 sets the limits of a new job.
func (g *Job) loadV2(l Limits) error {
	t := g.instance.tree
	var err error
	g.v2, err = cgroup2.Load(filepath.Join(t.base, g.group), cgroup2.WithMountpoint(t.unified))
	if err != nil {
		return err
	}
	return g.setV2(l, false)
}

func (g *Job) setV2(l Limits, lift bool) error {
	if err := g.v2.Update(l.v2(g.instance.has.swap, lift)); err != nil {
		return err
	}
	weight := l.IOWeight
	if weight == 0 {
		if !lift {
			return nil
		}
		weight = 100
	}
	err := write(filepath.Join(g.dirs[0], "io.weight"), strconv.Itoa(int(weight)))
	if errors.Is(err, fs.ErrNotExist) && weight <= bfqMax {
		err = write(filepath.Join(g.dirs[0], "io.bfq.weight"), strconv.Itoa(int(weight)))
	}
	return weightError(err, l)
}

// weightError makes a missing file what it means. A weight that was not asked for needs none.
func weightError(err error, l Limits) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.IOWeight == 0 {
		return nil
	}
	return fmt.Errorf("I/O weight %d: %w (hint: io.weight needs iocost; BFQ, up to %d, its scheduler)",
		l.IOWeight, ErrUnsupported, bfqMax)
}

// v1 gives the limits as cgroup1 takes them. memsw is memory and swap together. The kernel takes the largest
// number for no limit.
func (l Limits) v1(swap, lift bool) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	memory := l.MemoryBytes
	if memory == 0 && lift {
		memory = math.MaxInt64
	}
	if memory != 0 {
		r.Memory = &specs.LinuxMemory{Limit: &memory}
		if swap {
			r.Memory.Swap = &memory
		}
	}
	if l.MilliCPUs != 0 {
		quota, period := l.quota()
		r.CPU = &specs.LinuxCPU{Quota: &quota}
		if lift || period != defaultPeriod {
			r.CPU.Period = &period
		}
	} else if lift {
		r.CPU = &specs.LinuxCPU{Quota: new(int64(-1))}
	}
	if l.PIDs != 0 {
		r.Pids = &specs.LinuxPids{Limit: &l.PIDs}
	}
	return r
}

func (g *Job) makeV1(l Limits) error {
	path := func(name cgroup1.Name) (string, error) { return g.instance.v1Path(name, g.group), nil }
	hierarchy := func() ([]cgroup1.Subsystem, error) { return g.instance.subsystemsFor(l), nil }
	var err error
	g.v1, err = cgroup1.New(path, l.v1(g.instance.has.swap, false), cgroup1.WithHierarchy(hierarchy))
	if err != nil {
		return err
	}
	return g.setV1Weight(l, false)
}

func (g *Job) setV1Weight(l Limits, lift bool) error {
	weight := l.IOWeight
	if weight == 0 {
		if !lift || !g.io {
			return nil
		}
		weight = 100
	}
	err := fs.ErrNotExist
	if weight <= bfqMax {
		err = write(filepath.Join(g.v1Dir("blkio"), "blkio.bfq.weight"), strconv.Itoa(int(weight)))
	}
	return weightError(err, l)
}

// v1Dir returns the job's directory in the hierarchy of a v1 controller.
func (g *Job) v1Dir(controller string) string {
	return g.instance.tree.path(g.instance.tree.v1[controller], g.group)
}
