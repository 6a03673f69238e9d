package cgroup

import (
	"os"
	"path"
	"slices"
	"strings"
)

// Hasten triggers now the RCU grace period that the next write to a cgroup.procs file would wait for (see
// [Job.Attach]), and returns when it has passed. A caller that runs it in parallel with the preparations of such a
// write shortens or avoids the wait there. It writes this process to its own group of the unified hierarchy, which
// changes nothing. It does nothing if that group is not found, and on v1 without a unified hierarchy. Measured after
// 30 ms without load: 8 to 11 ms, all of it waiting.
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
	own := strings.TrimPrefix(ownGroup(string(self)), strings.TrimSuffix(t.mounts[n].root, "/"))
	dir := path.Join(t.unified, own)
	// If /proc/self/cgroup and the mount disagree, this may be the directory of another group.
	members, err := groupAt(dir).Processes()
	if err != nil || !slices.Contains(members, os.Getpid()) {
		return
	}
	_ = groupAt(dir).Write(procsFile, "0") // an error shows again when a process really joins a group
}
