package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"corral/egress/control"
	"corral/egress/relay"
	"corral/policy/network"
)

// dialFiles are the descriptors that a connection to a host may need while it is made: two to ask for the name, one for the
// connection, and one to look at an address. One of them stays.
const dialFiles = 4

// A site is one port of a host, with the listener in the job's network namespace and the connections.
type site struct {
	door     *door
	host     *host
	port     uint16
	protocol string
	listener *net.TCPListener
	relay    *relay.Relay
	ctx      context.Context
	cancel   context.CancelFunc

	mu sync.Mutex
	// The fields below are guarded by mu.
	closed  string // why; empty: it is not
	clients map[*client]bool
	servers map[*server]bool
	unsent  []string // headers of requests that were not passed on
}

func newSite(d *door, h *host, port network.Port, l *net.TCPListener) *site {
	s := &site{
		door: d, host: h, port: port.Number, protocol: port.Protocol, listener: l,
		clients: map[*client]bool{}, servers: map[*server]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(d.ctx)
	s.relay = s.newRelay()
	return s
}

// serve accepts connections until the listener is closed.
func (s *site) serve() {
	for {
		conn, err := s.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the host has no descriptors or memory
			continue
		}
		s.accept(conn)
	}
}

// accept starts to serve a connection, if it is allowed.
func (s *site) accept(conn *net.TCPConn) {
	d := s.door
	decision := d.rules.Load().set.Decide(s.host.name, s.port)
	denial := control.Denial{Name: s.host.name, Port: s.port, Why: decision.Why, Allow: decision.Allow}
	switch {
	case !decision.Allowed:
	case decision.Protocol != s.protocol:
		denial.Why = errClosed.Error()
	case d.record.up.exhausted():
		denial.Why = whyUp
	case d.record.down.exhausted():
		denial.Why = whyDown
	case !d.conns.take(1):
		denial.Why = fmt.Sprintf("the job or session has %d connections open, which is the maximum", d.server.Connections)
	case !d.files.take(1):
		d.conns.give(1)
		denial.Why = errFiles.Error()
	default:
		c := &client{Conn: conn, tcp: conn, site: s, rule: decision.Rule, began: time.Now()}
		if s.add(c) {
			d.record.allow()
			d.server.work.Go(c.serve)
			return
		}
		c.release()
		denial.Why = errClosed.Error()
	}
	reset(conn)
	d.deny(denial, false)
}

// reset closes a connection so that the job sees that it was not the host that closed it.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}

func (s *site) add(c *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != "" {
		return false
	}
	s.clients[c] = true
	return true
}

// close ends everything of the site.
func (s *site) close(why string) {
	defer s.relay.Close() // closes connections, which calls forget
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	s.listener.Close()
	s.door.files.give(1)
	s.cancel()
	for c := range s.clients {
		reset(c.tcp)
	}
	for c := range s.servers {
		c.Conn.Close()
	}
}

// ended returns why the site was closed, "" if it is not.
func (s *site) ended() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// recheck closes the connections to addresses that the rules in force do not allow, and ends such requests.
func (s *site) recheck() {
	s.relay.Recheck()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.servers {
		if !c.allowed() {
			c.ended.Store(true)
			c.Conn.Close()
		}
	}
}

// dial connects to the host.
func (s *site) dial(ctx context.Context) (net.Conn, error) {
	if !s.door.files.take(dialFiles) {
		return nil, errFiles
	}
	conn, err := s.dialAddr(ctx)
	if err != nil {
		s.door.files.give(dialFiles)
		return nil, err
	}
	s.door.files.give(dialFiles - 1)
	return conn, nil
}

func (s *site) dialAddr(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // the transport of HTTP has contexts of its own
	before := s.door.rules.Load()
	conn, err := s.door.server.Dialer.Dial(ctx, s.host.name, s.port, before.private)
	if err != nil {
		return nil, err
	}
	c := &server{Conn: conn, site: s}
	s.mu.Lock()
	closed := s.closed != ""
	if !closed {
		s.servers[c] = true
	}
	s.mu.Unlock()
	// The rules may have changed since Dial checked the address. A change after this finds the connection.
	if closed || s.door.rules.Load() != before && !c.allowed() {
		conn.Close()
		s.forget(c)
		return nil, errClosed
	}
	return c, nil
}

func (s *site) forget(c *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.servers, c)
}

// A server is a connection to a host. With HTTP, several connections of the job's use it one after the other.
type server struct {
	net.Conn
	site  *site
	once  sync.Once
	ended atomic.Bool // by newer rules
}

// Read implements net.Conn.
func (c *server) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.ended.Load() {
		err = errClosed
	}
	return n, err
}

// Received implements relay.Socket: the job's connection counts.
func (*server) Received(n int) (int, error) { return n, nil }

// Sending implements relay.Socket.
func (*server) Sending(n int) (int, error) { return n, nil }

// Unsent implements relay.Socket.
func (*server) Unsent(int) {}

// SyscallConn implements syscall.Conn.
func (c *server) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}

// allowed reports whether the rules in force allow its address.
func (c *server) allowed() bool {
	to, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return err == nil && c.site.door.server.Dialer.Check(c.site.host.name, to.Addr(), c.site.door.rules.Load().private) == nil
}

// CloseWrite passes the end of the job's direction on.
func (c *server) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close implements net.Conn.
func (c *server) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.site.forget(c)
		c.site.door.files.give(1)
	})
	return err
}
