package cgroup

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return groupAt(g.dirs[0].Path).Processes() }

// Freeze freezes the processes of the job until the function that it returns is called, except those in uninterruptible system calls.
// Other system calls are interrupted. Kill works on a frozen job, and thaws it.
func (g *Job) Freeze() func() {
	freeze(g.dirs[0].Path)
	return func() { thaw(g.dirs[0].Path) }
}
