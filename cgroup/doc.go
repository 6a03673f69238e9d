// Package cgroup is one job's envelope: limits go in, usage and events come out, and all of it can be killed at once.
// It hides whether the host has cgroup v1, v2 or both.
//
// Its words: a [Tree] is what the host has; an [Instance] is one supervisor's part of it; a [Jail] is one jail in that,
// and a [Job] is one run in a jail, the only one with limits. In each hierarchy used they are directories:
//
//	BASE/corral/INSTANCE/JAIL/init    the jail's first process
//	BASE/corral/INSTANCE/JAIL/JOB     a job
//
// BASE is the hierarchy's root or, on v2, the group that systemd delegated to us; then the processes in it are moved to
// its child "supervisor", since a group with controllers below it must have no process of its own.
//
// There are three layouts. "v2": the unified hierarchy does everything. "v1": memory, pids, cpu and cpuacct limit and
// account, freezer helps to kill. "hybrid": v1's memory, pids and cpu limit; the unified mount, which has no
// controllers there, gives cgroup.kill, groups that a process can be born in (CLONE_INTO_CGROUP), an event when the
// last process has gone, and the CPU time. Which one, and what else a kernel may lack, is decided once, by [Detect];
// [Tree.Features] is the table.
//
// On v2 limits are set through github.com/containerd/cgroups. It lacks, and this package has: cgroup.kill with a fallback
// that ends and never signals a bare pid, descriptors for clone3, hybrid hosts, pids.events, peaks without the rest of
// memory.stat, waiting for the last process, one watch for all groups that may run out of memory, and the removal of
// what a killed supervisor left. Four of its calls are avoided for what they cost: cgroup2.NewManager, which switches the
// controllers on again in every ancestor (Load and Update do not); cgroup1.New, which goes to each directory and file
// from the root, looks at every directory on the way, and enters each file in the runtime's poller (here a jail's
// directories are open, and a job is made from there by bare calls); Stat of either version, which opens and reads up to
// thirty files while a result waits for it (here five are open since the job was made, and are read again); and Delete,
// which reads every group's processes before rmdir(2), which refuses by itself when there are any.
//
// Measured by BenchmarkJob and BenchmarkStep on two busy cores, for a job with limits of memory, CPU and processes, at
// Linux 6.18, hybrid and v1 alike: 0.25 ms to make it, of which mkdir(2) has a half, 0.04 to watch it, 0.12 to remove
// it, 0.008 to read its account (containerd's Stat alone takes 0.5). With cgroup1.New making it took 0.37. In an emulated
// guest with v2 at Linux 6.1, where all is some fifteen times slower, 2.1 ms to make it and 0.3 to remove it; NewManager
// and Delete together take 5.0 there, and Stat 2.5.
//
// This package never starts a process, never removes what is not below a directory of its own called corral, and never
// runs with less than what was asked for: a limit that this host cannot enforce is [ErrUnsupported].
package cgroup
