// Package trust makes programs in a jail trust the authority whose certificates corral-egress uses when it ends TLS
// connections of jobs.
//
// Clients read three kinds of stores: one of the system, that of Java, and some that come with the client itself. For the
// first two, a jail or a session with a root of its own has copies of the host's, with the authority added (Files). For the
// others, jobs have environment variables (Variables).
package trust
