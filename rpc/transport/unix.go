package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/peer"
	"corral/internal/ratelimit"
	"corral/rpc"
)

// UnixOptions configure who is served over a unix socket.
type UnixOptions struct {
	// Peers are the user ids that may connect, in addition to 0 and the user of this process.
	Peers []uint32
	// Principal returns the name of a user in requests and in the audit log. It is required.
	Principal func(uid uint32) string
	Log       *slog.Logger // receives refused clients; required
}

// ServeUnix serves the clients that connect to l, each with a call of serve, until ctx ends or l fails. It closes l, and
// returns after all calls of serve have returned. The error is nil if ctx ended.
func ServeUnix(ctx context.Context, l *Socket, o UnixOptions, serve Handler) error {
	u := &unixServer{UnixOptions: o, serve: serve}
	defer u.conns.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.accept(ctx)
		if err != nil {
			_ = l.Close()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve unix socket: %w", err)
		}
		if why := u.start(ctx, conn); why != nil {
			o.Log.Warn("client refused", "socket", l.path, "error", why)
			_ = conn.Close()
		}
	}
}

type unixServer struct {
	UnixOptions
	serve Handler
	conns connLimiter
	in    ratelimit.Shares // bytes of messages that are received, by client
}

// start serves a client in a new goroutine, or returns why it is refused.
func (u *unixServer) start(ctx context.Context, conn *net.UnixConn) error {
	uid, err := peer.User(conn)
	if err != nil {
		return err
	}
	if !u.allowed(uid) {
		return fmt.Errorf("user %d may not connect: it is neither root, this server's user, nor a configured peer", uid)
	}
	who := u.Principal(uid)
	if !u.conns.acquire(who) {
		return fmt.Errorf("%s has too many connections (at most %d), or the server has (at most %d)", who, maxPerClient, maxClients)
	}
	go func() {
		defer u.conns.release(who)
		in := &share{of: &u.in, who: who}
		defer in.release()
		err := u.serve(ctx, newLines(conn, in), rpc.Caller{Principal: who})
		_ = conn.Close()
		logEnd(u.Log, who, err)
	}()
	return nil
}

func (o *UnixOptions) allowed(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Getuid()) || slices.Contains(o.Peers, uid)
}

// logEnd logs the error that ended a connection, unless the server was shut down.
func logEnd(log *slog.Logger, who string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Info("connection ended", "principal", who, "error", err)
	}
}

// accept retries while descriptors or memory are short: other connections will end and release some.
func (s *Socket) accept(ctx context.Context) (*net.UnixConn, error) {
	for {
		conn, err := s.l.AcceptUnix()
		switch {
		case err == nil:
			return conn, nil
		case !slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED}, func(e error) bool {
			return errors.Is(err, e)
		}):
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
