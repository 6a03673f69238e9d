// Package probe accesses what clients name or send without waiting for a client: a directory can be on a file system
// that the client serves itself, and so can the descriptors in its messages.
//
// What the kernel answers from memory is read directly. Everything else is done by helper processes, which can be
// abandoned. Their number is bounded per user and in all. The package runs as root; the helpers have no rights except
// to traverse directories.
package probe
