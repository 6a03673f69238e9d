// Package transport carries the messages of package rpc: lines over standard input and output, lines over a unix socket,
// and text frames over a WebSocket. It authenticates the peer and frames messages; it does not interpret them.
//
// A client of a unix socket is identified by the kernel (SO_PEERCRED), a client of a WebSocket by its bearer token. A
// message has at most rpc.MaxMessage bytes, and a connection holds at most one message in each direction: a client that
// does not read blocks only the goroutine that writes to it. The connections of a server, and the memory for the messages
// that they are receiving, are bounded, both in total and per client.
package transport

import (
	"context"
	"sync"

	"corral/internal/ratelimit"
	"corral/rpc"
)

// A Handler serves one client until it disconnects, as rpc.Server.Serve does. It closes conn.
type Handler func(ctx context.Context, conn rpc.Conn, who rpc.Caller) error

// Bounds of one server.
const (
	maxClients   = 128 // authenticated connections in total
	maxPerClient = 64  // of one user or principal
)

// connLimiter counts the connections of a server per client. The zero value is ready for use.
type connLimiter struct {
	clients sync.WaitGroup

	open  ratelimit.Shares // connections, by client
	mu    sync.Mutex
	ended bool // guarded by mu
}

// acquire counts a connection of who, and reports whether it is allowed. If so, release must be called when it ends.
func (p *connLimiter) acquire(who string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || !p.open.Take(who, 1, func(all, own int64) bool { return all <= maxClients && own <= maxPerClient }) {
		return false
	}
	p.clients.Add(1)
	return true
}

func (p *connLimiter) release(who string) {
	p.open.Return(who, 1)
	p.clients.Done()
}

// close makes acquire return false from now on, and waits until all connections are released.
func (p *connLimiter) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.clients.Wait()
}
