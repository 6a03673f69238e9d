package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// A Feature is something that only some kernels or hosts have, for a report to a person.
type Feature struct {
	Name    string
	Present bool
	Seen    string // the file or setting that was checked
	Without string // what happens on a host without it
}

// A feature is a row of the table of differences between hosts and of their consequences.
type feature struct {
	name, seen, without string
	present             func(p probe) bool
}

var features = []feature{
	{
		"one hierarchy (v2)", "cgroup2 and no v1 controller in /proc/self/mountinfo",
		"limits come from v1's controllers",
		func(p probe) bool { return p.tree.layout == "v2" },
	},
	{
		"unified mount (v2 or hybrid)", "cgroup2 in /proc/self/mountinfo",
		"v1: jobs join the freezer too, and are frozen and killed",
		func(p probe) bool { return p.tree.unified != "" },
	},
	{
		"fork into a group", "the unified mount (Linux 5.7), on a hybrid host without nsdelegate",
		"each job is moved into its groups by writing cgroup.procs, which can take 10 ms, ahead of the request",
		func(p probe) bool { return p.tree.clone },
	},
	{
		"delegation", "trusted.delegate or user.delegate on our own group (systemd, v2)",
		"groups are created at the root of the hierarchy",
		func(p probe) bool { return p.tree.delegated },
	},
	{
		"kill a group", "cgroup.kill (Linux 5.14)",
		"the group is frozen, its processes are killed through pidfds, in rounds until no new one appears",
		func(p probe) bool { return p.has(killFile) },
	},
	{
		"freeze a group", "cgroup.freeze (Linux 5.2) or v1's freezer",
		"without cgroup.kill too, processes are killed in rounds, bounded by the limit of processes",
		func(p probe) bool { return p.has(v2Freezer) || p.tree.v1["freezer"] != "" },
	},
	{
		"group killed when out of memory", "memory.oom.group (v2, Linux 4.19)",
		"v1: the kernel kills one process and notifies the supervisor, which kills the rest",
		func(p probe) bool { return p.has("memory.oom.group") },
	},
	{
		"swap accounting", "memory.swap.max or v1's memory.memsw.limit_in_bytes",
		"a memory limit is refused while the host has swap in use; without swap it bounds all memory",
		func(p probe) bool { return p.swap() },
	},
	{
		"peak memory", "memory.peak (v2, Linux 5.19) or v1's memory.max_usage_in_bytes",
		"it is reported as unknown",
		func(p probe) bool { return p.has("memory.peak") || p.has("memory.max_usage_in_bytes") },
	},
	{
		"peak number of processes", "pids.peak (Linux 6.1 or later, by distribution)",
		"it is reported as unknown",
		func(p probe) bool { return p.has("pids.peak") },
	},
	{
		"number of refused forks", "pids.events",
		"it is reported as zero",
		func(p probe) bool { return p.has("pids.events") },
	},
	{
		"I/O bytes", "io.stat (v2)",
		"they are reported as unknown",
		func(p probe) bool { return p.has("io.stat") },
	},
}

// Features reports for each row of the table whether this host has the feature. Most features show in the files of a
// group other than the root of a hierarchy: an instance's if there is one, else the first one found. If a hierarchy
// has no such group, the features that depend on it are reported as not present.
func (t *Tree) Features() []Feature {
	p := probe{t, t.sample}
	list := make([]Feature, 0, len(features))
	for _, f := range features {
		list = append(list, Feature{Name: f.name, Present: f.present(p), Seen: f.seen, Without: f.without})
	}
	return list
}

// A probe checks for files in the groups returned by dirIn for a controller.
type probe struct {
	tree  *Tree
	dirIn func(controller string) string
}

// has reports whether the file exists. The part of its name before the first dot is the controller.
func (p probe) has(file string) bool {
	controller, _, _ := strings.Cut(file, ".")
	dir := p.dirIn(controller)
	if dir == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

func (p probe) swap() bool { return p.has("memory.swap.max") || p.has("memory.memsw.limit_in_bytes") }

// sample returns any group in the hierarchy of a controller, "" if there is none.
func (t *Tree) sample(controller string) string {
	point := t.point(controller)
	if point == "" {
		return ""
	}
	for _, pattern := range []string{
		t.path(point, t.top, "*"), t.path(point, t.top), t.path(point, "*"), filepath.Join(point, "*"),
	} {
		found, _ := filepath.Glob(pattern)
		for _, dir := range found {
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				return dir
			}
		}
	}
	return ""
}

// A kernel holds those features that are checked for each job.
type kernel struct {
	kill bool // cgroup.kill
	swap bool // swap can be limited
}

func (t *Tree) kernel(dirIn func(controller string) string) kernel {
	p := probe{t, dirIn}
	return kernel{kill: p.has(killFile), swap: p.swap()}
}
