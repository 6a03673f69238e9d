package egress

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"corral/egress/control"
	"corral/egress/dial"
	"corral/egress/relay"
	"corral/internal/text"
)

// Why a connection ends that is over a bound of the rules.
const (
	whyUp   = "the job or session has sent as many bytes as the rules allow"
	whyDown = "the job or session has received as many bytes as the rules allow"
)

var errBytes = errors.New("the bytes that the rules allow are used up")

// maxLogged bounds texts of jobs and servers in the log, in bytes.
const maxLogged = 500

// A client is a connection of the job's. It counts what it passes on.
type client struct {
	net.Conn // not *net.TCPConn, whose ReadFrom would copy around Write
	tcp      *net.TCPConn
	site     *site
	rule     string
	began    time.Time
	up, down atomic.Int64
	over     atomic.Pointer[string] // which bound it is over
}

// Read implements net.Conn.
func (c *client) Read(p []byte) (int, error) {
	n, err := c.tcp.Read(p)
	within, over := c.Received(n)
	if over != nil {
		err = over
	}
	return within, err
}

// Write implements net.Conn.
func (c *client) Write(p []byte) (int, error) {
	within, over := c.Sending(len(p))
	n, err := c.tcp.Write(p[:within])
	c.Unsent(within - n)
	if err == nil {
		err = over
	}
	return n, err
}

// Received implements relay.Socket.
func (c *client) Received(n int) (within int, over error) {
	within = c.site.door.record.up.add(n)
	c.up.Add(int64(within))
	if within < n {
		over = c.exceed(whyUp)
	}
	return within, over
}

// Sending implements relay.Socket.
func (c *client) Sending(n int) (within int, over error) {
	within = c.site.door.record.down.add(n)
	c.down.Add(int64(within))
	if within < n {
		over = c.exceed(whyDown)
	}
	return within, over
}

// Unsent implements relay.Socket.
func (c *client) Unsent(n int) {
	c.site.door.record.down.total.Add(-int64(n))
	c.down.Add(-int64(n))
}

// SyscallConn implements syscall.Conn.
func (c *client) SyscallConn() (syscall.RawConn, error) { return c.tcp.SyscallConn() }

// CloseWrite passes the end of the host's direction on.
func (c *client) CloseWrite() error { return c.tcp.CloseWrite() }

// exceed makes the connection one that is over a bound.
func (c *client) exceed(why string) error {
	c.over.CompareAndSwap(nil, &why)
	return errBytes
}

// serve serves the connection to its end.
func (c *client) serve() {
	err := c.site.relay.Serve(c.site.ctx, c)
	c.Close()
	c.site.mu.Lock()
	delete(c.site.clients, c)
	c.site.mu.Unlock()
	c.release()
	c.report(err)
}

// release gives up what the connection had of the budgets.
func (c *client) release() {
	c.site.door.conns.give(1)
	c.site.door.files.give(1)
}

// report records and logs how the connection ended.
func (c *client) report(err error) {
	s := c.site
	verdict, why := "allowed", ""
	denial := control.Denial{Name: s.host.name, Port: s.port}
	refused, denied := (*dial.Refused)(nil), (*relay.Denied)(nil)
	over := c.over.Load()
	switch closed := s.ended(); {
	case closed != "":
		verdict, why = "closed", closed
	case over != nil:
		verdict, denial.Why = "denied", *over
	case errors.As(err, &refused):
		verdict, denial.Why, denial.Allow = "denied", refused.Name+" has the address "+refused.Addr.String()+": "+refused.Why, refused.Allow
	case errors.As(err, &denied):
		verdict, denial.Why = "denied", denied.Why
	case err != nil:
		why = err.Error()
		// How a connection that was made ends is the affair of both ends: many clients reset it.
		if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "read" && op.Op != "write" {
			verdict = "failed"
		}
	}
	if denial.Why != "" {
		why = denial.Why
		s.door.record.deny(denial, false)
	}
	attrs := []any{
		"host", s.host.name, "port", s.port, "verdict", verdict, "rule", text.Cut(c.rule, maxLogged),
		"bytes_up", c.up.Load(), "bytes_down", c.down.Load(), "duration_ms", time.Since(c.began).Milliseconds(),
	}
	if why != "" {
		attrs = append(attrs, "why", text.Cut(why, maxLogged))
	}
	s.door.log.write("connection", attrs...)
}
