package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"corral/cgroup/group"
)

// Left is memory in bytes that is charged to a group without processes, and that the kernel may not be able to reclaim: somebody
// outside of the group may hold it. Cached files are not part of it.
type Left struct {
	// Shared is in memory files (memfd_create(2)), shared memory and files on tmpfs, swapped or not.
	Shared int64
	// Other is what the kernel allocated for the group's processes, such as data in sockets and pipes, and pages that are
	// in no process, file or cache any more. It includes what the kernel can reclaim, such as entries of its cache of directories: see
	// [Job.Reclaim]. The kernel keeps some of it for 50 ms after a process has ended.
	Other int64
}

// Sum returns all bytes.
func (l Left) Sum() int64 { return l.Shared + l.Other }

// Left returns the memory that is charged to the job, which has no process. Shared may be off by 64 pages per processor. So may
// Other for pages that are not the kernel's, and on v2 for all.
func (g *Job) Left() (Left, error) { return g.instance.left(g.in("memory")) }

// Reclaim makes the kernel drop what it can of the memory that is charged to the job, as [Jail.Reclaim] does for a jail.
func (g *Job) Reclaim() error { return g.instance.reclaim(g.in("memory")) }

// stock is the maximum of memory in bytes that the kernel charges to a group in advance on each processor (MEMCG_CHARGE_BATCH).
func stock() int64 { return int64(64 * os.Getpagesize() * runtime.NumCPU()) }

// left reads the memory of a group and its descendants, removed ones included.
func (i *Instance) left(dir group.Group) (Left, error) {
	v2 := i.tree.layout == "v2"
	usageFile, kernelFile := "memory.usage_in_bytes", "memory.kmem.usage_in_bytes"
	if v2 {
		usageFile, kernelFile = "memory.current", ""
	}
	b, err := dir.Read(usageFile)
	if err != nil {
		return Left{}, err
	}
	usage := group.Number(b)
	stat, err := dir.Read("memory.stat")
	if err != nil {
		return Left{}, err
	}
	of := func(v1, v2name string) int64 {
		if v2 {
			return max(0, group.ValueOf(stat, v2name))
		}
		return max(0, group.ValueOf(stat, v1))
	}
	l := Left{Shared: of("total_shmem", "shmem")}
	files, kernel := of("total_cache", "file"), int64(0)
	if v2 {
		kernel = of("", "kernel") // since Linux 5.18
	} else {
		l.Shared += of("total_swap", "") // v2 has a limit of its own for swap, which is 0
		if b, err := dir.Read(kernelFile); err == nil {
			kernel = max(0, group.Number(b))
		}
	}
	l.Other = max(0, kernel, usage-files-stock())
	if !i.has.reclaim {
		l.Other = max(0, l.Other-of("", "slab_reclaimable"))
	}
	return l, nil
}

// reclaim makes the kernel drop what it can of the memory of a group and its descendants.
func (i *Instance) reclaim(dir group.Group) error {
	file, value := "memory.force_empty", "0"
	if i.tree.layout == "v2" {
		b, err := dir.Read("memory.current")
		if err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		file, value = "memory.reclaim", strings.TrimSpace(string(b))
	}
	err := dir.Write(file, value)
	for _, some := range []error{unix.EAGAIN, unix.EBUSY, unix.ENOENT} { // the remaining pages are in use
		if errors.Is(err, some) {
			return nil
		}
	}
	return err
}
