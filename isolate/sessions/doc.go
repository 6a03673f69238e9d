// Package sessions has the sessions of a supervisor's clients: open ones, the layers that outlive them, and the root file
// systems with which they can start.
//
// A session is a jail of one client with a layer of its own: what its jobs write lasts until the session ends. The
// changes that jobs made behind an overlay are kept in the state directory until they are discarded or expire. The
// package runs as root; it mounts layers, and never reads what jobs wrote to them. Lock order: Manager, then the jails.
package sessions
