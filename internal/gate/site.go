package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/peer"
)

// Listen listens for browsers of this machine at HOST:PORT, where HOST is localhost, 127.0.0.1 or ::1. Each stands for both addresses: a
// browser resolves names in localhost to both, and sends what is for us, cookies too, to whoever has the port at the one that it tries
// first. Other addresses are refused: no browser would connect to them.
func Listen(address string) (list []net.Listener, port uint16, err error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, fmt.Errorf("%w\nhint: must be HOST:PORT, such as localhost:7071", err)
	}
	if host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return nil, 0, fmt.Errorf("%q is not localhost, 127.0.0.1 or ::1\nhint: use localhost:PORT; for a browser on another machine, forward the port: ssh -L PORT:localhost:PORT", host)
	}
	for n, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, number))
		if n > 0 && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
			break // a host without IPv6
		}
		if err != nil {
			for _, l := range list {
				_ = l.Close()
			}
			return nil, 0, err
		}
		list = append(list, l)
		port = uint16(l.Addr().(*net.TCPAddr).Port)
		number = strconv.Itoa(int(port))
	}
	return list, port, nil
}

// CheckInterval is how often what a browser has open is looked at: a stream, a response or a WebSocket goes on for so long after the
// browser may see it no longer. A token that was revoked is noticed half a second later: together that is less than the second that is
// promised.
const CheckInterval = 250 * time.Millisecond

// Bounds of connections of browsers.
const (
	headerTimeout = 10 * time.Second // to send the header of a request
	idleTimeout   = time.Minute      // of a connection without a request
)

// A Peer is the user of this machine whose program connected, such as a browser or, for one on another machine, sshd. The zero value is
// nobody, to whom no cookie belongs.
type Peer struct {
	uid   uint32
	known bool
}

// PeerUser returns the peer that is a user.
func PeerUser(uid uint32) Peer { return Peer{uid, true} }

// peerKey is the key of the Peer in the context of a request.
type peerKey struct{}

// WithPeer returns a context of requests that a peer has sent.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the user who sent the request with a context.
func PeerOf(ctx context.Context) Peer {
	p, _ := ctx.Value(peerKey{}).(Peer)
	return p
}

// withPeer finds out who has connected. It does so at once: the kernel forgets it when the other end closes.
func (s Site) withPeer(ctx context.Context, c net.Conn) context.Context {
	ctx = WithConn(ctx, c)
	uid, err := peer.TCPUser(c)
	switch {
	case errors.Is(err, peer.ErrNotHere):
		s.Log.Debug("a connection has no user", "from", c.RemoteAddr().String(), "error", err)
		return ctx
	case err != nil:
		s.Log.Warn("no browser can log in: the kernel does not tell which user has connected", "error", err,
			"hint", "allow AF_NETLINK in RestrictAddressFamilies= of the service, and the kernel module tcp_diag")
		return ctx
	}
	return WithPeer(ctx, PeerUser(uid))
}

// A Site is what browsers of this machine are served.
type Site struct {
	Handler        http.Handler
	MaxHeader      int // bytes
	MaxConnections int // of a listener
	Log            *slog.Logger
}

// Serve serves listeners until ctx ends, by HTTP/1.1 alone: the contexts of requests are made from ctx. A listener that fails ends the
// others.
func (s Site) Serve(ctx context.Context, listeners ...net.Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: s.MaxHeader, Protocols: protocols,
		ConnContext: s.withPeer, ConnState: Watch, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { served <- server.Serve(Limit(l, s.MaxConnections)) }()
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	var errs []error
	for range listeners {
		err := <-served
		_ = server.Close()
		if !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
