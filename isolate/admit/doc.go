// Package admit decides which directories a client may have jobs in, with which limits and profile, and opens them.
//
// A directory is served because the operator configured it, or because the client owns it and passes its descriptor. Its
// device and inode are pinned, and it is held open. The package runs as root: whatever a client named or passed is
// accessed by a prober only, and a client that may not have a directory learns nothing about it.
package admit
