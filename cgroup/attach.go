package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Attach moves a process, and the processes that it has forked so far, into those of the job's groups in which
// [Job.Dir] did not start it. On v2 there are none. The error wraps ESRCH if the process has ended.
//
// Attach joins the group that [Job.Kill] acts on first, and then compares the members of the others with it until
// none is missing, so a child forked meanwhile is not left behind. A child forked before the call is found only if
// the process was started in Dir. A write to cgroup.procs may block for milliseconds, because every fork on the
// machine excludes it (cgroup_threadgroup_rwsem, an RCU grace period): call Attach ahead of the request. [Job.Tasks]
// avoids the write.
func (g *Job) Attach(pid int) error {
	if g.fd >= 0 && len(g.dirs) == 1 {
		return nil
	}
	if err := g.attach(pid); err != nil {
		return fmt.Errorf("put process %d into the job's cgroup: %w", pid, err)
	}
	return nil
}

func (g *Job) attach(pid int) error {
	self := g.self.Load()
	unwritten := g.dirs
	switch {
	case self && g.fd >= 0:
		unwritten = nil
	case self:
		unwritten = g.dirs[:1]
	case g.fd >= 0:
		unwritten = g.dirs[1:]
	}
	for _, dir := range unwritten {
		if err := dir.Join(pid); err != nil {
			return err
		}
	}
	members, err := g.dirs[0].Processes()
	switch {
	case err != nil:
		return err
	case !slices.Contains(members, pid):
		return unix.ESRCH
	case len(members) == 1 && !self:
		// The process was the only member after it had joined every group: whatever it forks from now on starts in
		// all of them.
		return nil
	}
	for {
		n, err := joinMissing(g.dirs[1:], members)
		if err != nil || n == 0 {
			return err
		}
		if members, err = g.dirs[0].Processes(); err != nil {
			return err
		}
	}
}

// joinMissing moves those members into each group that are not in it, and returns how many it moved.
func joinMissing(dirs []group, members []int) (int, error) {
	n := 0
	for _, dir := range dirs {
		there, err := dir.Processes()
		if err != nil {
			return n, err
		}
		for _, pid := range members {
			if slices.Contains(there, pid) {
				continue
			}
			switch err := dir.Join(pid); {
			case err == nil:
				n++
			case !errors.Is(err, unix.ESRCH): // the process has ended
				return n, err
			}
		}
	}
	return n, nil
}

// Tasks opens for writing the tasks files of those groups that [Job.Dir] does not start a process in. The process
// writes "0" to each to join it; it must have a single thread, must not fork meanwhile, and must close the files
// before it executes anything of a job. The kernel checks the permissions of the opener, so the process needs none.
// Call [Job.Attach] afterwards as usual: it compares the members and finds nothing to do. The caller closes the
// files.
//
// A thread that moves itself is the only move that the kernel makes without cgroup_threadgroup_rwsem (since Linux
// 5.5; before, it costs as much as Attach). Measured after 30 ms without load, for three groups: 0.06 ms, against 5.5
// ms for Attach (14 ms at the 95th percentile). Only v1 hierarchies have such groups. Tasks returns no files on v2,
// and none on v1 without a unified hierarchy, where the group that [Job.Kill] acts on must be joined first.
func (g *Job) Tasks() ([]*os.File, error) {
	if g.instance.tree.unified == "" || len(g.dirs) == 1 {
		return nil, nil
	}
	var files []*os.File
	for _, dir := range g.dirs[1:] {
		fd, err := dir.Open("tasks", unix.O_WRONLY)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), dir.Path+"/tasks"))
	}
	g.self.Store(true)
	return files, nil
}
