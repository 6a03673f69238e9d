// Package trust makes what runs in a jail trust the authority with whose certificates corral-egress ends TLS connections of
// jobs.
//
// Clients read three kinds of stores: one of the system, that of Java, and some that come with the client itself. Of the first
// two, a jail or a session with a root of its own has the host's, with the authority added (Files). For the others there are
// variables (Variables).
package trust
