package cgroup

import "corral/cgroup/group"

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return group.At(g.dirs[0].Path).Processes() }

// Freeze freezes every process of the job until thaw is called, and reports whether all are frozen: a process in an
// uninterruptible system call is not. Kill works on a frozen job.
func (g *Job) Freeze() (thawed func(), frozen bool) {
	frozen = group.Freeze(g.dirs[0].Path)
	return func() { group.Thaw(g.dirs[0].Path) }, frozen
}
