// Package cell makes jails and slots, and runs jobs in them.
//
// A jail is the prepared environment of one user, repository and profile: a container that libcontainer builds once
// (user, mount, PID, network, IPC, UTS and cgroup namespaces, a root of read-only system directories) whose process 1
// is corral-init. A slot is a prepared environment for one job in a jail, made ahead where possible: fresh
// namespaces, a cgroup of its own, and a waiting stub that has completed every confinement step that does not depend
// on the job. A job takes one slot, and a slot is used once: the repository arrives as a detached mount whose owner
// is mapped to the slot's user, the stub mounts it at its path, and the stub's waiting child completes its own
// confinement and executes the program.
//
// The package runs as root. It decides nothing about clients: whoever asks for a jail has been admitted. It is the only
// importer of runc's libcontainer, and no libcontainer type appears in its API. Lock order: Jails, then one Jail or
// pool.
package cell
