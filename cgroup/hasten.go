package cgroup

import (
	"os"
	"path"
	"slices"
	"strings"
)

// Hasten has the kernel begin now with the wait that the next write of a cgroup.procs file would begin with, an RCU grace
// period (see [Job.Attach]), and returns after it. Who calls it beside what comes before such a write finds the wait over,
// or the rest of it. It puts this process into the group of the unified hierarchy in which it is, so it changes nothing; it
// does nothing where that group is not found, and on v1 without a unified hierarchy. Measured after 30 ms of rest: 8 to
// 11 ms, of waiting alone.
func (i *Instance) Hasten() {
	t := i.tree
	if t.unified == "" {
		return
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	n := slices.IndexFunc(t.mounts, func(m mount) bool { return m.point == t.unified })
	group := strings.TrimPrefix(ownGroup(string(self)), strings.TrimSuffix(t.mounts[n].root, "/"))
	dir := path.Join(t.unified, group)
	// Where what is mounted and what is said do not fit together, this could be another group.
	members, err := processesIn(dir)
	if err != nil || !slices.Contains(members, os.Getpid()) {
		return
	}
	_ = write(path.Join(dir, procsFile), "0") // who joins a group in earnest says what is wrong
}
