// Package serve serves the supervisor's clients: it accepts their connections, reads their requests and writes the
// answers.
//
// The number of connections, and of requests that one of them has under way, is bounded. A message that violates the
// protocol ends its connection. Descriptors are received and closed through a prober, so that no client blocks the
// supervisor. What runs is decided behind the interface Jobs. The package runs as root.
package serve
