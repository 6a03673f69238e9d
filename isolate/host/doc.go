// Package host holds what the supervisor has and uses of the machine: its instance with the blocks of user ids and the
// cgroups, user namespaces, programs and toolchains, and who its clients are there.
//
// The package runs as root. It reads files of root (passwd(5), subuid(5), programs, system directories) and of the
// kernel, and nothing that a client or a job could have written. A path in it is the supervisor's own or the
// operator's.
package host
