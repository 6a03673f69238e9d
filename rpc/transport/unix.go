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

	"corral/rpc"
)

// UnixOptions say who is served over a unix socket.
type UnixOptions struct {
	// Peers are the user ids that may connect, beside 0 and this process's own.
	Peers []uint32
	// Principal returns what a user is called in requests and in the log. It is required.
	Principal func(uid uint32) string
	Log       *slog.Logger // of who is refused; required
}

// ServeUnix serves the clients that connect to l, each by a call of serve, until ctx ends or l fails. It closes l, and
// returns when every serve has. The error is nil when ctx ended.
func ServeUnix(ctx context.Context, l *Socket, o UnixOptions, serve Handler) error {
	u := &unixServer{UnixOptions: o, serve: serve}
	defer u.places.end()
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
		if why := u.take(ctx, conn); why != nil {
			o.Log.Warn("client refused", "socket", l.path, "error", why)
			_ = conn.Close()
		}
	}
}

type unixServer struct {
	UnixOptions
	serve  Handler
	places places
}

// take has a client served, or says why it is not.
func (u *unixServer) take(ctx context.Context, conn *net.UnixConn) error {
	uid, err := peer(conn)
	if err != nil {
		return err
	}
	if !u.allowed(uid) {
		return fmt.Errorf("user %d is no peer", uid)
	}
	who := u.Principal(uid)
	if !u.places.take(who) {
		return fmt.Errorf("%s has too many connections, or all together have", who)
	}
	go func() {
		defer u.places.give(who)
		err := u.serve(ctx, newLines(conn), rpc.Caller{Principal: who})
		_ = conn.Close()
		ended(u.Log, who, err)
	}()
	return nil
}

func (o *UnixOptions) allowed(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Getuid()) || slices.Contains(o.Peers, uid)
}

// ended logs what a client's end was, unless it is the server's.
func ended(log *slog.Logger, who string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Info("connection ended", "principal", who, "error", err)
	}
}

// peer returns who made the other end of a connection, as the kernel saw it at connect(2).
func peer(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if controlled := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlled != nil {
		return 0, controlled
	}
	if err != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred.Uid, nil
}

// accept waits where there is no descriptor or memory left for a connection: others will end.
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
