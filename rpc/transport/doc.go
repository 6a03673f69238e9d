// Package transport carries the messages of package rpc: lines over standard input and output, lines over a unix socket,
// and text frames over a WebSocket. It knows who is at the other end and how a message is framed; it reads none.
//
// Who connects to a unix socket is what the kernel says (SO_PEERCRED), who connects to a WebSocket is whose bearer token
// it has. A connection has its messages bounded by rpc.MaxMessage, and holds at most one of them in each direction: a
// client that does not read stalls who writes to it, and nobody else. There are bounds on how many connections a server
// has, and how many of them are one client's.
package transport

import (
	"context"
	"sync"

	"corral/rpc"
)

// A Handler serves one client until it is gone: rpc.Server.Serve. It closes the connection.
type Handler func(ctx context.Context, conn rpc.Conn, who rpc.Caller) error

// Bounds of one server.
const (
	maxClients = 128 // of whom it is known who they are
	maxShare   = 64  // of one user or principal
)

// places are the connections of a server, by who has them.
type places struct {
	clients sync.WaitGroup

	mu    sync.Mutex
	ended bool           // guarded by mu
	all   int            // guarded by mu
	taken map[string]int // guarded by mu
}

// take takes a place, and reports whether there was one.
func (p *places) take(who string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.all >= maxClients || p.taken[who] >= maxShare {
		return false
	}
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	p.all++
	p.taken[who]++
	p.clients.Add(1)
	return true
}

func (p *places) give(who string) {
	defer p.clients.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.taken[who]--; p.taken[who] == 0 {
		delete(p.taken, who)
	}
}

// end lets nobody take a place any more, and waits until all are given back.
func (p *places) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.clients.Wait()
}
