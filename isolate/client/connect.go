package client

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
	"corral/job"
)

// Connect returns a TCP connection to a port of the processes in the session with this id: at 127.0.0.1 or, if nobody
// listens there, at ::1 of the session's own network. It waits until a process can accept it, or ctx ends. The caller
// closes the file, which is non-blocking; net.FileConn makes a connection of it. A *job.Refusal says that there is no such
// session, or with ECONNREFUSED that nobody listens.
func (c *Client) Connect(ctx context.Context, session string, port uint16) (*os.File, error) {
	if port == 0 {
		return nil, &job.Refusal{Step: "connect", Message: "port 0 is no port to connect to"}
	}
	if len(session) > wire.MaxName { // cut, it would name another session
		return nil, &job.Refusal{Step: "session", Message: "no session " + session[:wire.MaxName] + "…"}
	}
	f, err := c.connectAt(ctx, wire.Connect{ID: session, Port: port})
	if refused(err) {
		return c.connectAt(ctx, wire.Connect{ID: session, Port: port, IPv6: true})
	}
	return f, err
}

func refused(err error) bool {
	var r *job.Refusal
	return errors.As(err, &r) && r.Errno == int(unix.ECONNREFUSED)
}

// connectAt asks for a socket and waits until it is connected.
func (c *Client) connectAt(ctx context.Context, m wire.Connect) (*os.File, error) {
	a, err := c.answered(ctx, wire.OpConnected, &m)
	if err != nil {
		return nil, err
	}
	if len(a.files) != 1 {
		wire.CloseAll(a.files)
		return nil, wire.ErrMalformed
	}
	return connected(ctx, a.files[0], m.Port)
}

// connected waits until the connection that was begun at a socket is complete. It takes over socket.
func connected(ctx context.Context, socket *os.File, port uint16) (*os.File, error) {
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	socket.Close()
	if err != nil {
		return nil, err
	}
	// Non-blocking, for the runtime's poller: passing the file on can have changed that.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection to a session")
	raw, err := f.SyscallConn()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
		var failed error
		err = raw.Write(func(fd uintptr) bool {
			var done bool
			done, failed = complete(int(fd))
			return done
		})
		if !stop() && ctx.Err() != nil {
			err = cmp.Or(ctx.Err(), err)
		}
		err = cmp.Or(err, failed)
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, job.NobodyListens(port)
	}
	return nil, err
}

// complete reports whether the connection that was begun at a socket is complete, or has failed with err.
func complete(fd int) (done bool, err error) {
	switch n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); {
	case err != nil:
		return true, err
	case n != 0:
		return true, unix.Errno(n)
	}
	switch _, err := unix.Getpeername(fd); {
	case errors.Is(err, unix.ENOTCONN):
		return false, nil
	default:
		return true, err
	}
}

// Ports returns the TCP ports, in ascending order, of the session with this id at which Connect reaches a process. more says
// that there may be others beyond them.
func (c *Client) Ports(ctx context.Context, session string) (ports []uint16, more bool, err error) {
	if len(session) > wire.MaxName {
		return nil, false, &job.Refusal{Step: "session", Message: "no session " + session[:wire.MaxName] + "…"}
	}
	a, err := c.one(ctx, wire.OpPortList, &wire.Ports{ID: session})
	if err != nil {
		return nil, false, err
	}
	m, err := wire.Decode[wire.PortList](a.body)
	return m.Ports, m.More, err
}
