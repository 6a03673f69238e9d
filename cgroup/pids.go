package cgroup

import "corral/cgroup/group"

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return group.At(g.dirs[0].Path).Processes() }

// Freeze freezes the processes of the job until thaw is called, except those in uninterruptible system calls. Other system calls are
// interrupted. Kill works on a frozen job, and thaws it.
func (g *Job) Freeze() (thaw func()) {
	group.Freeze(g.dirs[0].Path)
	return func() { group.Thaw(g.dirs[0].Path) }
}
