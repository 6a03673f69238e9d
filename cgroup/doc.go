// Package cgroup enforces the limits of a job, measures its resource use, and kills all of its processes at once. It
// hides whether the host has cgroup v1, v2 or both.
//
// A [Tree] describes the hierarchies of the host; an [Instance] is the part that belongs to one supervisor; a [User] is
// the part of one user in it, with a limit of memory; a [Jail] is one jail; a [Job] is one run in a jail, and the only
// other level with limits. In each hierarchy used they are directories:
//
//	BASE/corral/INSTANCE/USER/JAIL/init    the jail's first process
//	BASE/corral/INSTANCE/USER/JAIL/JOB     a job
//
// BASE is the root of the hierarchy or, on v2, the group that systemd delegated to the supervisor; in the latter case
// its processes are moved to its child "supervisor", since a group that enables controllers for its children must not
// have processes of its own.
//
// There are three layouts. "v2": the unified hierarchy does everything. "v1": memory, pids, cpu and cpuacct enforce
// limits and account, freezer helps to kill. "hybrid": the v1 controllers memory, pids and cpu enforce limits; the
// unified mount (without controllers) provides cgroup.kill, groups that a process can start in (CLONE_INTO_CGROUP),
// and the CPU time. [Detect] decides once on the layout and on the other features that a kernel may lack;
// [Tree.Features] lists them.
//
// On v2, limits are set with github.com/containerd/cgroups. This package adds what that library lacks: cgroup.kill
// with a fallback that terminates and never signals a bare PID, descriptors for clone3, hybrid hosts, pids.events,
// peaks without the rest of memory.stat, one watch for all groups that may run out of memory, and removal of the
// groups left by a supervisor that was killed. Four of its calls are avoided because of their cost:
//
//   - cgroup2.NewManager enables the controllers again in every ancestor. Load and Update do not.
//   - cgroup1.New looks up each directory and file from the root, inspects every directory on the way, and registers
//     each file with the runtime's poller. Here the jail's directories are open, and a job is created relative to
//     them with plain system calls.
//   - Stat of either version opens and reads up to thirty files while a result waits. Here five files stay open from
//     the job's creation, and are read again.
//   - Delete reads the processes of every group before rmdir(2), which fails by itself if there are any.
//
// Measured on two busy cores, for a job with limits of memory, CPU and processes,
// on Linux 6.18, hybrid and v1 alike: 0.25 ms to create the job, half of it in mkdir(2), 0.04 to watch it, 0.12 to
// remove it, 0.008 to read its usage (containerd's Stat alone takes 0.5). With cgroup1.New, creating it took 0.37. In
// an emulated guest with v2 on Linux 6.1, where everything is about fifteen times slower: 2.1 ms to create it and 0.3
// to remove it; NewManager and Delete together take 5.0 there, and Stat 2.5.
//
// This package never starts a process, never removes anything outside its own directory named corral, and never runs
// a job with less than the requested limits: a limit that the host cannot enforce is [ErrUnsupported].
package cgroup
