package cgroup

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return processesIn(g.dirs[0].path) }

// Freeze freezes every process of the job until thaw is called, and reports whether all are frozen: a process in an
// uninterruptible system call is not. Kill works on a frozen job.
func (g *Job) Freeze() (thawed func(), frozen bool) {
	frozen = freeze(g.dirs[0].path)
	return func() { thaw(g.dirs[0].path) }, frozen
}
