// Package isolate is the supervisor: it runs jobs in jails.
//
// A jail is the prepared environment of one repository and one profile: a container that libcontainer builds once (user,
// mount, PID, network, IPC, UTS and cgroup namespaces, a root of read-only system directories) whose process 1 is
// corral-init. A slot is a place for one job in it, made ahead where it can be: fresh namespaces, a cgroup of its own,
// and a waiting stub with all of the confinement done that does not depend on the job. A job takes a slot, which is
// used once: the repository arrives as a detached mount whose owner is mapped to the slot's user, the stub places it, and
// its child, which has waited, confines itself the rest of the way and executes.
//
// The package runs as root and is the only one that does. It reads: the operator's configuration (as Config), its own
// programs, wire messages of clients, and fixed-layout reports of stubs. It never reads a job's output, a file of a
// repository, or the arguments of a program. What it makes on the host is listed in instance.go and removed by Close, or,
// after a kill, by the next supervisor that starts.
//
// It is the only importer of runc's libcontainer; no type of that leaves it.
package isolate
