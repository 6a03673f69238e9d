package cgroup

import (
	"path/filepath"
	"slices"

	"github.com/containerd/cgroups/v3/cgroup1"
)

// loadSubsystems makes containerd's v1 controllers, once.
//
// Each takes a root and expects its hierarchy at ROOT/NAME, which does not hold where cpu and cpuacct share one. So the
// root is "/", and v1Path leads from there to the real place.
func (i *Instance) loadSubsystems() {
	if i.tree.layout == "v2" {
		return
	}
	i.points = map[cgroup1.Name]string{}
	var made []string
	for _, s := range []cgroup1.Subsystem{
		cgroup1.NewFreezer("/"), cgroup1.NewPids("/"), cgroup1.NewMemory("/"), cgroup1.NewCpu("/"), cgroup1.NewCpuacct("/"),
	} {
		point := i.tree.v1[string(s.Name())]
		if !slices.Contains(i.tree.points(), point) || slices.Contains(made, point) {
			continue
		}
		made = append(made, point)
		i.points[s.Name()] = point
		i.subsystems = append(i.subsystems, s)
	}
	if point := i.tree.v1["blkio"]; point != "" {
		i.points[cgroup1.Blkio] = point
	}
}

// subsystemsFor returns the controllers for a job's limits. blkio is joined only by those who have a use for it: each
// hierarchy costs its directory, its attach and its removal.
func (i *Instance) subsystemsFor(l Limits) []cgroup1.Subsystem {
	if l.IOWeight == 0 {
		return i.subsystems
	}
	return append(i.subsystems[:len(i.subsystems):len(i.subsystems)], cgroup1.NewBlkio("/"))
}

// v1Path returns a group as a path from ROOT/NAME on, where containerd joins and cleans it.
func (i *Instance) v1Path(name cgroup1.Name, group string) string {
	return filepath.Join("..", i.points[name]) + group
}
