package cgroup

import (
	"os"
	"path/filepath"
	"strings"
)

// A Feature is something that not every kernel or host has, for a report to a person.
type Feature struct {
	Name    string
	Present bool
	Seen    string // how it is seen: the file, or what else was looked at
	Without string // what is done where it is not there
}

// A feature is a row of the table: everything in which hosts differ, and what follows from it.
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
		"v1: jobs join the freezer too, and are frozen and killed; the last process's end is polled for",
		func(p probe) bool { return p.tree.unified != "" },
	},
	{
		"fork into a group", "the unified mount (Linux 5.7), on a hybrid host without nsdelegate",
		"each job is put into its groups by writing cgroup.procs, which can take 10 ms, ahead of the request",
		func(p probe) bool { return p.tree.clone },
	},
	{
		"delegation", "trusted.delegate or user.delegate on our own group (systemd, v2)",
		"groups are made at the root of the hierarchy",
		func(p probe) bool { return p.tree.delegated },
	},
	{
		"kill a group", "cgroup.kill (Linux 5.14)",
		"the group is frozen, its processes are killed through pidfds, in rounds until none is new",
		func(p probe) bool { return p.has(killFile) },
	},
	{
		"freeze a group", "cgroup.freeze (Linux 5.2) or v1's freezer",
		"where there is no cgroup.kill either, processes are killed in rounds, which the limit of processes bounds",
		func(p probe) bool { return p.has(v2Freezer) || p.tree.v1["freezer"] != "" },
	},
	{
		"group killed when out of memory", "memory.oom.group (v2, Linux 4.19)",
		"v1: the kernel kills one process and tells the supervisor, which kills the rest",
		func(p probe) bool { return p.has("memory.oom.group") },
	},
	{
		"swap accounting", "memory.swap.max or v1's memory.memsw.limit_in_bytes",
		"a limit of memory is refused while the host has swap in use; without any it bounds all there is",
		func(p probe) bool { return p.swap() },
	},
	{
		"peak of memory", "memory.peak (v2, Linux 5.19) or v1's memory.max_usage_in_bytes",
		"it is reported as unknown",
		func(p probe) bool { return p.has("memory.peak") || p.has("memory.max_usage_in_bytes") },
	},
	{
		"peak of processes", "pids.peak (Linux 6.1 or later, by distribution)",
		"it is reported as unknown",
		func(p probe) bool { return p.has("pids.peak") },
	},
	{
		"count of refused forks", "pids.events",
		"it is reported as zero",
		func(p probe) bool { return p.has("pids.events") },
	},
	{
		"weight of I/O", "io.weight, io.bfq.weight or v1's blkio.bfq.weight",
		"a job with a weight is refused",
		func(p probe) bool { return p.has("io.weight") || p.has("io.bfq.weight") || p.has("blkio.bfq.weight") },
	},
	{
		"bytes of I/O", "io.stat (v2), or v1's blkio.throttle files for a job with a weight",
		"they are reported as unknown",
		func(p probe) bool { return p.has("io.stat") },
	},
}

// Features returns the table of what hosts differ in, for this one. Most of it shows in the files of a group that is
// not a hierarchy's root: an instance's if there is one, else the first that is found. Where a hierarchy has no such
// group, what depends on it is given as not present.
func (t *Tree) Features() []Feature {
	p := probe{t, t.sample}
	list := make([]Feature, 0, len(features))
	for _, f := range features {
		list = append(list, Feature{Name: f.name, Present: f.present(p), Seen: f.seen, Without: f.without})
	}
	return list
}

// A probe looks at the files of groups. Which, dirIn says for a controller.
type probe struct {
	tree  *Tree
	dirIn func(controller string) string
}

// has reports whether there is such a file. The controller is the part of its name before the first dot.
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

// sample returns some group in the hierarchy of a controller, "" if there is none.
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

// A kernel is what the path of a job must know of the table.
type kernel struct {
	kill bool // cgroup.kill
	swap bool // swap can be limited
}

func (t *Tree) kernel(dirIn func(controller string) string) kernel {
	p := probe{t, dirIn}
	return kernel{kill: p.has(killFile), swap: p.swap()}
}
