// Package isolate is the supervisor: it runs jobs in jails.
//
// A jail is the prepared environment of one repository and one profile: a container that libcontainer builds once
// (user, mount, PID, network, IPC, UTS and cgroup namespaces, a root of read-only system directories) whose process 1
// is corral-init. A slot is a prepared environment for one job in a jail, made ahead where possible: fresh
// namespaces, a cgroup of its own, and a waiting stub that has completed every confinement step that does not depend
// on the job. A job takes one slot, and a slot is used once: the repository arrives as a detached mount whose owner
// is mapped to the slot's user, the stub mounts it at its path, and the stub's waiting child completes its own
// confinement and executes the program.
//
// The package runs as root, and no other package does. Its inputs are the operator's configuration (as Config),
// corral's own programs, wire messages of clients, and fixed-layout reports of stubs. It never reads a job's output,
// a file of a repository, or the arguments of a program. Everything it creates on the host is listed in instance.go
// and removed by Close, or, if the supervisor was killed, by the next supervisor that starts.
//
// It is the only importer of runc's libcontainer, and no libcontainer type appears in its API.
package isolate
