// Package isolate is the supervisor: it runs jobs in jails.
//
// A request passes authorize, which decides about it and records the decision in the audit log, takes a slot of a jail,
// and is watched until no process of the job is left. The packages below do the parts: host has what the supervisor
// uses of the machine, probe accesses what clients name or send, admit decides which directories are served, cell makes
// jails and slots, meter bounds what no cgroup bounds.
//
// The package and those below it run as root, and no other package does. Inputs are the operator's configuration (as
// Config), corral's own programs, wire messages of clients, and fixed-layout reports of stubs. No output of a job, file
// of a repository, or argument of a program is ever read. Everything that is created on the host is listed in
// host/instance.go and removed by Close, or, if the supervisor was killed, by the next supervisor that starts.
package isolate
