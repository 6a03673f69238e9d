// Package door is the supervisor's side of the network access of jobs: it starts corral-egress, which answers for hosts in
// the network namespaces of jobs, and hands the sockets of their doors over.
//
// Each user whose jobs have doors has a process of corral-egress, with a user id that no account and no other process has,
// without a capability, in a PID namespace and a cgroup of its own, under a filter of system calls. It shares the network
// of the host. The supervisor sends it the operator's rules and the sockets. It reads a number and an opaque text from it,
// and nothing else. A process that ends, or sends anything else, is started again, with all doors: until then these are
// closed, since nobody listens.
package door
