// Package meter ends jobs that use more of what no cgroup bounds than they may: disk space and files of a repository,
// and record locks.
//
// Both are found by polling, first cheaply for the whole host or file system, then by reading the descriptor tables of
// the job's processes in /proc while the job is frozen. What cannot be read in time counts as too much.
package meter
