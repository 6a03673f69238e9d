package gate

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// shares is how many principals it takes to use up the connections of a listener: one has a quarter of them at most.
const shares = 4

// Limit has at most n connections open. When one more comes, it takes the place of the oldest whose client has shown no
// token yet, else of the one that has been idle longest, of the principal that has most. When every connection is serving a
// request it waits for one to close. A principal has at most n/4 of them, and at least one: see Admit.
//
// The server must report what its connections do: see WithConn, Admit and Watch.
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
	strangers list.List             // guarded by mu: of *limitedConn, oldest first
	known     map[string]*list.List // guarded by mu: the same by principal, those that were idle or admitted last at the end
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

// enter takes a connection in, if there is room or can be made.
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

// victim returns the connection that makes room for another, nil if all are busy. It is called with mu held.
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

// drop closes a connection, once. It is called with mu held.
func (l *limitedListener) drop(c *limitedConn) {
	if c.left {
		return
	}
	c.left = true
	c.leave()
	c.err = c.Conn.Close()
	l.open--
	// A server that waits for room tries again. It looks once for several that leave: there is one that accepts.
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
	idle      bool   // it serves no request, and has served one
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

// leave takes a connection from the list that it is in. It is called with mu held.
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

// admit makes a connection principal's, whose longest idle one makes room for it. It is called with mu held.
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

// WithConn is for http.Server, as ConnContext: a request's context knows its connection.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Watch is for http.Server, as ConnState: a connection that waits for its next request may be closed for another's.
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
		select { // what waits for room may take this one's
		case l.freed <- struct{}{}:
		default:
		}
	}
}

// Admit says that the request with this context has a token of principal, which must not be "": its connection makes no
// room for strangers while it is served. It is false when principal has its share of the connections already and all of
// them are busy: then the request must be refused, and its connection closed.
func Admit(ctx context.Context, principal string) bool {
	c, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok { // a Handler behind another's server
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.admit(principal)
}

// Conn returns the connection of a request with this context, nil if it is not known: see WithConn.
func Conn(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}
