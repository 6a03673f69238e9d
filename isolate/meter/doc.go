// Package meter ends jobs that use more of what no cgroup bounds than they may: disk space and files of a repository,
// and record locks.
//
// Both are found by polling, first cheaply for the whole host or file system, then by reading what the kernel reports of the
// job in /proc, the descriptor tables of its processes among it. The job runs meanwhile, because stopping it would interrupt
// its system calls; only one near its disk limit is frozen to be judged.
package meter
