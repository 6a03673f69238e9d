// Package sessions tests sessions from the side of their clients: what jobs of a session share, what ends a session, and what is
// kept of it. It has no code of its own.
package sessions
