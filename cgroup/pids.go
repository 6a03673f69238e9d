package cgroup

import "corral/cgroup/group"

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return group.At(g.dirs[0].Path).Processes() }
