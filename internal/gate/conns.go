package gate

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// shares is the number of principals among which the connections of a listener are divided: each has at most a quarter.
const shares = 4

// Limit returns a listener with at most n open connections. A new connection above that evicts the oldest one that has not
// authenticated or, if all have, the one that has been idle longest among those of the principal with the most connections. If
// all are serving requests, Accept blocks until one closes. A principal has at most n/4 connections, but at least one.
//
// The HTTP server must report the states of its connections: see WithConn, Admit and Watch.
func Limit(l net.Listener, n int) net.Listener {
	return &limitedListener{
		Listener: l, limit: n, share: max(1, n/shares), freed: make(chan struct{}, 1), closed: make(chan struct{}),
		known: map[string]*list.List{},
	}
}

type limitedListener struct {
	net.Listener
	limit, share int
	freed        chan struct{}
	closed       chan struct{}
	once         sync.Once

	mu        sync.Mutex
	open      int                   // guarded by mu
	strangers list.List             // guarded by mu: *limitedConn that have not authenticated, oldest first
	known     map[string]*list.List // guarded by mu: *limitedConn by principal, the most recently idle or admitted last
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: inner, of: l}
	for !l.enter(c) {
		select {
		case <-l.freed:
		case <-l.closed:
			_ = inner.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// enter registers a connection, after evicting another one if necessary. It returns false if none can be evicted.
func (l *limitedListener) enter(c *limitedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limit {
		victim := l.victim()
		if victim == nil {
			return false
		}
		l.drop(victim)
	}
	l.open++
	c.among = &l.strangers
	c.place = l.strangers.PushBack(c)
	return true
}

// victim returns the connection to evict for a new one, nil if all are busy. The caller holds mu.
func (l *limitedListener) victim() *limitedConn {
	if oldest := l.strangers.Front(); oldest != nil {
		return oldest.Value.(*limitedConn)
	}
	var found *limitedConn
	most := 0
	for _, conns := range l.known {
		if conns.Len() > most {
			if c := idlest(conns); c != nil {
				found, most = c, conns.Len()
			}
		}
	}
	return found
}

// idlest returns the connection that has been idle longest, nil if all are busy.
func idlest(conns *list.List) *limitedConn {
	for e := conns.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*limitedConn); c.idle {
			return c
		}
	}
	return nil
}

// drop closes a connection, once. The caller holds mu.
func (l *limitedListener) drop(c *limitedConn) {
	if c.left {
		return
	}
	c.left = true
	c.leave()
	c.err = c.Conn.Close()
	l.open--
	// Accept tries again if it waits. One signal is enough for several closed connections, because one goroutine accepts.
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	of *limitedListener

	// Guarded by the mu of the listener.
	among     *list.List // the strangers, or the connections of principal
	place     *list.Element
	principal string // "" before Admit
	idle      bool   // it has served a request and waits for the next one
	left      bool
	err       error
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.drop(c)
	return c.err
}

// leave removes a connection from its list. The caller holds mu.
func (c *limitedConn) leave() {
	if c.place == nil {
		return
	}
	c.among.Remove(c.place)
	if c.principal != "" && c.among.Len() == 0 {
		delete(c.of.known, c.principal)
	}
	c.among, c.place = nil, nil
}

// admit assigns a connection to a principal. If the principal has its share already, its connection that has been idle longest is
// closed; if all are busy, admit returns false. The caller holds mu.
func (c *limitedConn) admit(principal string) bool {
	if c.left {
		return false
	}
	l := c.of
	c.idle = false
	if c.principal == principal {
		return true
	}
	if own := l.known[principal]; own != nil && own.Len() >= l.share {
		victim := idlest(own)
		if victim == nil {
			return false
		}
		l.drop(victim)
	}
	c.leave()
	if l.known[principal] == nil {
		l.known[principal] = list.New()
	}
	c.principal, c.among = principal, l.known[principal]
	c.place = c.among.PushBack(c)
	return true
}

type connKey struct{}

// WithConn stores the connection in the contexts of its requests. It is to be the ConnContext of an http.Server.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Watch records which connections are idle and may be closed for others. It is to be the ConnState of an http.Server.
func Watch(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	c.idle = state == http.StateIdle
	if c.idle && c.principal != "" && c.place != nil {
		c.among.MoveToBack(c.place)
		select { // Accept may wait for an idle connection
		case l.freed <- struct{}{}:
		default:
		}
	}
}

// Admit records that the request with this context was authenticated as principal, which must not be "". Its connection is not
// evicted for clients that have not authenticated. If Admit returns false, the principal's share of the connections is used up
// and all of them are busy: the caller must refuse the request and close its connection.
func Admit(ctx context.Context, principal string) bool {
	c, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok { // the server has no WithConn
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.admit(principal)
}

// Conn returns the connection of a request with this context, nil without WithConn.
func Conn(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// Open returns the number of open connections of a listener of Limit, 0 for another one.
func Open(l net.Listener) int {
	limited, ok := l.(*limitedListener)
	if !ok {
		return 0
	}
	limited.mu.Lock()
	defer limited.mu.Unlock()
	return limited.open
}
