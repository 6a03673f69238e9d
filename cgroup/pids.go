package cgroup

// PIDs lists the processes of the job at this moment, by their ids in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return processesIn(g.dirs[0].path) }

// Freeze stops every process of the job until thaw is called, and reports whether all have stopped: one in an
// uninterruptible system call does not. Kill works on a frozen job.
func (g *Job) Freeze() (thawed func(), frozen bool) {
	frozen = freeze(g.dirs[0].path)
	return func() { thaw(g.dirs[0].path) }, frozen
}
