package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// A footprint is the memory that corral uses, in bytes.
type footprint struct {
	slots           int   // slots and jobs: cgroups of jobs that have a process
	private         int64 // of their processes, not shared with others (Private_* of smaps_rollup)
	charged, kernel int64 // charged to their cgroups, and the kernel's part of it, if known
	supervisor      int64 // unshared, of the supervisor and its other processes
	slab, available int64 // of the machine
}

// running is the number of jobs by which the memory of one is measured.
const running = 64

// memoryMode measures the memory of an idle slot and of a running job.
func memoryMode(ctx context.Context, o *options) error {
	c, err := client.Dial(o.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	r := newResult("memory", "Memory", "what", "number", "unshared KiB each", "cgroup KiB each", "of that the kernel's",
		"Slab KiB each", "supervisor KiB, unshared")
	spec := job.Spec{Repo: o.repo, Args: []string{program}}
	if err := runJob(c, spec); err != nil {
		return err
	}
	first, err := o.settled()
	if err != nil {
		return err
	}
	var burst sync.WaitGroup
	for range 16 {
		burst.Go(func() {
			for range 16 {
				_ = runJob(c, spec) // a burst that fails leaves no slots, which the table shows
			}
		})
	}
	burst.Wait()
	idle, err := o.settled()
	if err != nil {
		return err
	}
	idle.row(r, "slot that waits", idle.slots, first, idle.slots-first.slots)
	var s sleepers
	defer s.end()
	for range running {
		if _, err := s.start(ctx, c, o.repo); err != nil {
			return err
		}
	}
	busy, err := o.settled()
	if err != nil {
		return err
	}
	busy.without(idle, busy.slots-running).row(r, "job that sleeps", running, idle, running)
	s.end()
	if err := bareSleepers(r); err != nil {
		return err
	}
	r.note("Unshared is Private_Clean and Private_Dirty of every process in the cgroups of slots and jobs. What the cgroup is charged has the job's private file systems, too. Slab is the machine's, before and after, divided by the number: it has namespaces and cgroups, and others' doings.")
	return o.publish(r)
}

// without returns f less the memory of n slots, as measured in other, which has idle slots only.
func (f footprint) without(other footprint, n int) footprint {
	if other.slots > 0 {
		share := func(v int64) int64 { return v * int64(n) / int64(other.slots) }
		f.private, f.charged, f.kernel = f.private-share(other.private), f.charged-share(other.charged), f.kernel-share(other.kernel)
	}
	return f
}

// row adds a row with the memory per slot or job, of n. Slab is the growth of the machine's Slab, divided by n.
func (f footprint) row(r *Result, what string, n int, before footprint, more int) {
	kib := func(v int64, n int) string {
		if n <= 0 {
			return "–"
		}
		return number(float64(v) / 1024 / float64(n))
	}
	r.add(what, fmt.Sprint(n), kib(f.private, n), kib(f.charged, n), kib(f.kernel, n), kib(f.slab-before.slab, more),
		number(float64(f.supervisor)/1024))
}

// settled returns the footprint once the number of slots has been constant for a while.
func (o *options) settled() (footprint, error) {
	var last footprint
	for range 50 {
		f, err := o.footprint()
		if err != nil {
			return f, err
		}
		if f.slots == last.slots && f.slots > 0 {
			return f, nil
		}
		last = f
		time.Sleep(200 * time.Millisecond)
	}
	return last, nil
}

// footprint adds up the cgroups of all jobs and slots of our supervisor.
func (o *options) footprint() (f footprint, err error) {
	root, usage, kernel := "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.kmem.usage_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, usage, kernel = "/sys/fs/cgroup", "memory.current", ""
	}
	instance, seen := o.instance(), map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // cgroups come and go
		}
		if !strings.HasPrefix(d.Name(), "job-") || !strings.Contains(path, "/"+instance+"/") {
			return nil
		}
		procs, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		pids := strings.Fields(string(procs))
		if len(pids) == 0 {
			return filepath.SkipDir
		}
		f.slots++
		f.charged += readNumber(filepath.Join(path, usage))
		if kernel != "" {
			f.kernel += readNumber(filepath.Join(path, kernel))
		} else {
			f.kernel += rowOf(filepath.Join(path, "memory.stat"), "kernel")
		}
		for _, pid := range pids {
			f.private += private(pid)
			seen[pid] = true
		}
		return filepath.SkipDir
	})
	for _, pid := range descendants(o.supervisor) {
		if !seen[pid] {
			f.supervisor += private(pid)
		}
	}
	f.slab, f.available = rowOf("/proc/meminfo", "Slab:")<<10, rowOf("/proc/meminfo", "MemAvailable:")<<10
	return f, err
}

// private returns the bytes that a process shares with no other, 0 if it has ended.
func private(pid string) int64 {
	name := "/proc/" + pid + "/smaps_rollup"
	return (rowOf(name, "Private_Clean:") + rowOf(name, "Private_Dirty:")) << 10
}

// rowOf returns the number after the word that begins a line of a file, 0 if there is none.
func rowOf(file, word string) int64 {
	text, _ := os.ReadFile(file)
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) >= 2 && f[0] == word {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func readNumber(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// descendants returns a process and its descendants.
func descendants(pid int) []string {
	parents := map[string]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			parents[filepath.Base(filepath.Dir(stat))] = f[1]
		}
	}
	top := strconv.Itoa(pid)
	below := []string{top}
	for p := range parents {
		for up := parents[p]; up != "" && up != "0"; up = parents[up] {
			if up == top {
				below = append(below, p)
				break
			}
		}
	}
	return below
}

// sleepers are jobs that sleep until end is called.
type sleepers struct {
	cancels []context.CancelFunc
	group   sync.WaitGroup
}

// start starts a job that reports that it runs and then sleeps. It returns the time until the report.
func (s *sleepers) start(ctx context.Context, c *client.Client, repo string) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	s.cancels = append(s.cancels, cancel)
	heard, ended := make(chan time.Duration, 1), make(chan error, 1)
	begin := time.Now()
	s.group.Go(func() {
		spec := job.Spec{Repo: repo, Args: []string{"/bin/sh", "-c", "echo; exec sleep 3600"}}
		r, err := runTo(ctx, c, spec, func(out *os.File) {
			if _, err := out.Read(make([]byte, 1)); err == nil {
				heard <- time.Since(begin)
			}
		})
		ended <- errors.Join(err, fmt.Errorf("%s: %+v", r.Status, r))
	})
	select {
	case d := <-heard:
		return d, nil
	case err := <-ended:
		return 0, err
	}
}

// end cancels all jobs and waits until they have ended.
func (s *sleepers) end() {
	for _, cancel := range s.cancels {
		cancel()
	}
	s.group.Wait()
	s.cancels = nil
}

// bareSleepers starts the same processes without corral.
func bareSleepers(r *Result) error {
	slab := rowOf("/proc/meminfo", "Slab:")
	var all []*exec.Cmd
	defer func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	for range running {
		cmd := exec.Command("/bin/sleep", "3600")
		if err := cmd.Start(); err != nil {
			return err
		}
		all = append(all, cmd)
	}
	time.Sleep(200 * time.Millisecond) // for their dynamic linkers
	var sum int64
	for _, cmd := range all {
		sum += private(strconv.Itoa(cmd.Process.Pid))
	}
	r.add("bare process that sleeps", fmt.Sprint(running), number(float64(sum)/1024/running), "–", "–",
		number(float64(rowOf("/proc/meminfo", "Slab:")-slab)/running), "–")
	return nil
}
