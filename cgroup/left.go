package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Left returns the memory that is charged to the job. The job must not have processes any more. Shared is inexact by up to 64
// pages per processor. Other is inexact by as much for pages that are not the kernel's, and on v2 for all pages.
func (g *Job) Left() (Left, error) {
	c, err := g.instance.charged(g.in("memory"))
	return g.instance.left(c), err
}

// Left returns the memory that is charged to those jobs of the jail that were removed. It is off like that of a job, and more while other
// jobs of the jail run: memory that one of them frees meanwhile may be part of it, and what it allocates may hide some. It is zero after
// [Jail.Remove].
func (j *Jail) Left() (Left, error) {
	if !j.jailDirs.Hold() {
		return Left{}, nil
	}
	defer j.jailDirs.Release()
	dir := j.memory()
	c, err := j.instance.charged(dir)
	if err != nil {
		return Left{}, err
	}
	names, err := group.Children(dir.Path)
	if err != nil {
		return Left{}, err
	}
	for _, name := range names {
		child, err := j.instance.charged(group.At(filepath.Join(dir.Path, name)))
		if err != nil && !group.Gone(err) {
			return Left{}, err
		}
		c.shared -= child.shared
		c.kernel -= child.kernel
		c.pages -= child.pages
		c.reclaimable -= child.reclaimable
	}
	return j.instance.left(c), nil
}

// Reclaim makes the kernel drop what it can of the memory that is charged to the job, as [Jail.Reclaim] does for a jail.
func (g *Job) Reclaim() error { return g.instance.reclaim(g.in("memory")) }

// stock is the maximum of memory in bytes that the kernel charges to a group in advance on each processor (MEMCG_CHARGE_BATCH).
func stock() int64 { return int64(64 * os.Getpagesize() * runtime.NumCPU()) }

// charged is memory in bytes that is charged to a group and its descendants, removed ones included.
type charged struct {
	shared      int64
	kernel      int64 // allocated by the kernel, including what is reclaimable
	pages       int64 // all but files that are cached or shared
	reclaimable int64 // part of kernel; 0 on v1, which does not tell
}

// memoryFile returns the file with the memory that a group uses now, in bytes.
func (t *Tree) memoryFile() string {
	if t.layout == "v2" {
		return "memory.current"
	}
	return "memory.usage_in_bytes"
}

// charged reads the memory of a group.
func (i *Instance) charged(dir group.Group) (charged, error) {
	v2 := i.tree.layout == "v2"
	usage, err := dir.Read(i.tree.memoryFile())
	if err != nil {
		return charged{}, err
	}
	stat, err := dir.Read("memory.stat")
	if err != nil {
		return charged{}, err
	}
	of := func(name string) int64 { return max(0, group.ValueOf(stat, name)) }
	if v2 {
		// A limit of 0 keeps shared memory out of the swap. Kernels before 5.18 do not report their memory.
		return charged{of("shmem"), of("kernel"), group.Number(usage) - of("file"), of("slab_reclaimable")}, nil
	}
	c := charged{shared: of("total_shmem") + of("total_swap"), pages: group.Number(usage) - of("total_cache")}
	if b, err := dir.Read("memory.kmem.usage_in_bytes"); err == nil { // not there without accounting of kernel memory
		c.kernel = max(0, group.Number(b))
	}
	return c, nil
}

// left returns what is left according to c.
func (i *Instance) left(c charged) Left {
	l := Left{max(0, c.shared), max(0, c.kernel, c.pages-stock())}
	if !i.has.reclaim {
		l.Other = max(0, l.Other-c.reclaimable)
	}
	return l
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
