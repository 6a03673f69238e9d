// Package relay connects a job to one port of one host: it checks that what the job sends is for the host whose address it
// connected to, and copies.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// The protocols.
const (
	TLS  = "tls"
	HTTP = "http"
	TCP  = "tcp"
	// HTTPS is TLS that ends here, for rules about requests. See NewInspecting.
	HTTPS = "https"
)

// Bounds of a connection.
const (
	// maxHead is the maximum size of what is read before the host is known: a ClientHello, or the head of a request.
	maxHead     = 16 << 10
	headTimeout = 10 * time.Second
	idleTimeout = 5 * time.Minute
)

// A Denied is a connection that is not for the host of its address.
type Denied struct{ Why string }

// Error returns the reason.
func (d *Denied) Error() string { return d.Why }

func denied(format string, values ...any) *Denied { return &Denied{fmt.Sprintf(format, values...)} }

// A Relay serves connections to one port of one name. Its methods may be called concurrently.
type Relay struct {
	name     string
	port     uint16
	protocol string
	dial     func(context.Context) (net.Conn, error)
	// The connections of HTTP to the host, which several of the job's share one after the other.
	transport *http.Transport
	head      time.Duration // timeouts, shorter in tests
	idle      time.Duration
	inspect   *Inspection // of HTTPS, and of HTTP to registries

	mu       sync.Mutex
	underway map[*underway]bool // guarded by mu: the requests that are checked
}

// New returns a Relay to a name, in lower case without the final dot. dial connects to that port of the name.
func New(name string, port uint16, protocol string, dial func(context.Context) (net.Conn, error)) *Relay {
	r := &Relay{name: name, port: port, protocol: protocol, dial: dial, head: headTimeout, idle: idleTimeout}
	if protocol == HTTP {
		r.transport = r.newTransport()
	}
	return r
}

// Close closes connections that wait for the next request.
func (r *Relay) Close() {
	if r.transport != nil {
		r.transport.CloseIdleConnections()
	}
}

// Serve serves one connection and closes it. The error is a *Denied if the connection was not for the host.
func (r *Relay) Serve(ctx context.Context, client net.Conn) error {
	defer client.Close()
	switch r.protocol {
	case TLS:
		return r.serveTLS(ctx, client)
	case HTTP:
		return r.serveHTTP(ctx, client)
	case HTTPS:
		if r.inspect != nil {
			return r.serveHTTPS(ctx, client)
		}
	case TCP:
		server, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer server.Close()
		return r.copyBoth(client, server)
	}
	return fmt.Errorf("unknown protocol %q", r.protocol)
}

// copyBoth copies in both directions until both have ended, one has failed, or none had traffic for the idle time.
func (r *Relay) copyBoth(client, server net.Conn) error {
	idle := time.AfterFunc(r.idle, func() { client.Close(); server.Close() })
	defer idle.Stop()
	var wg sync.WaitGroup
	var up, down error
	direction := func(to, from net.Conn, result *error) {
		if *result = r.copyOne(to, from, idle); *result != nil {
			client.Close()
			server.Close()
		}
	}
	wg.Go(func() { direction(server, client, &up) })
	direction(client, server, &down)
	wg.Wait()
	return errors.Join(up, down)
}

// copyOne copies until the end of one direction, and passes the end on. What comes fast is passed on by the kernel alone: see splicer.
func (r *Relay) copyOne(to, from net.Conn, idle *time.Timer) error {
	await := waiter(from)
	direct := newSplicer(to, from)
	for {
		if err := await(); err != nil {
			return err
		}
		n, err := r.copySome(to, from, idle)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n == bufferSize && direct != nil { // more may have arrived
			err = direct.passOn(func() { idle.Reset(r.idle) })
		}
		if err != nil {
			return err
		}
	}
	if err := closeWrite(to); !errors.Is(err, syscall.ENOTCONN) { // it has ended
		return err
	}
	return nil
}

// copySome copies the n bytes that one read returns. At the end of them it returns io.EOF.
func (r *Relay) copySome(to, from net.Conn, idle *time.Timer) (n int, err error) {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	n, err = from.Read(buffer[:])
	if n > 0 {
		idle.Reset(r.idle)
		if _, err := to.Write(buffer[:n]); err != nil {
			return n, err
		}
		idle.Reset(r.idle)
	}
	return n, err
}

// waiter returns a function that waits until a read of the connection would not block, if the connection is a socket. An error of the
// socket is told once: the read would take the end of a connection that was reset for that of its bytes.
func waiter(from net.Conn) func() error {
	conn, ok := from.(syscall.Conn)
	if !ok {
		return func() error { return nil }
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return func() error { return nil }
	}
	peeked := make([]byte, 1)
	var failed error
	ready := func(fd uintptr) bool {
		_, _, failed = syscall.Recvfrom(int(fd), peeked, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return !errors.Is(failed, syscall.EAGAIN)
	}
	return func() error {
		if raw.Read(ready) != nil || failed == nil { // what is wrong with a closed connection is what the read says
			return nil
		}
		return &net.OpError{Op: "read", Net: "tcp", Addr: from.RemoteAddr(), Err: os.NewSyscallError("recvfrom", failed)}
	}
}

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// sameName reports whether a name that a client wrote is a host's. Only ASCII letters have two cases in names of hosts.
func sameName(written, name string) bool {
	if len(written) != len(name) {
		return false
	}
	for n := range len(written) {
		c := written[n]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != name[n] {
			return false
		}
	}
	return true
}
