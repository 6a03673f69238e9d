package gate

import (
	"container/list"
	"context"
	"net"
	"sync"
)

// Limit has at most n connections open. When one more comes, it takes the place of the oldest whose client nobody
// knows yet; when all are known, it waits for one to close.
func Limit(l net.Listener, n int) net.Listener {
	return &limitedListener{Listener: l, limit: n, freed: make(chan struct{}, 1), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	limit  int
	freed  chan struct{}
	closed chan struct{}
	once   sync.Once

	mu        sync.Mutex
	open      int       // guarded by mu
	strangers list.List // guarded by mu: of *limitedConn, oldest first
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
		oldest := l.strangers.Front()
		if oldest == nil {
			return false
		}
		l.drop(oldest.Value.(*limitedConn))
	}
	l.open++
	c.stranger = l.strangers.PushBack(c)
	return true
}

// drop closes a connection, once. It is called with mu held.
func (l *limitedListener) drop(c *limitedConn) {
	if c.left {
		return
	}
	c.left = true
	c.meet()
	c.err = c.Conn.Close()
	l.open--
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
	stranger *list.Element
	left     bool
	err      error
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.drop(c)
	return c.err
}

// meet takes a connection from the strangers. It is called with mu held.
func (c *limitedConn) meet() {
	if c.stranger != nil {
		c.of.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

type connKey struct{}

// WithConn is for http.Server, as ConnContext: a request's context knows its connection.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Admit says that whoever sent the request with this context has a token: its connection makes no room for another.
func Admit(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok { // a Handler behind another's server
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.meet()
}

// Conn returns the connection of a request with this context, nil if it is not known: see WithConn.
func Conn(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}
