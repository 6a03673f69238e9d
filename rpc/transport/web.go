package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"corral/internal/gate"
	"corral/internal/ratelimit"
	"corral/rpc"
)

// WebOptions configure who is served over a WebSocket.
type WebOptions struct {
	// Authenticate returns the owner of a bearer token. It is required, must be safe for concurrent use, and should
	// compare hashes to resist timing attacks. It is called again while a connection is open, which is closed when the token is
	// not accepted any more or the principal may use other repositories.
	Authenticate func(token string) (rpc.Caller, bool)
	// Hosts are the accepted host names, with or without a port, in addition to those of the loopback interface.
	Hosts []string
	Log   *slog.Logger // receives refused clients; required
	// Ready returns an error if requests would fail; /readyz reports it. nil means always ready. It is called for
	// unauthenticated clients, at most once per second, and not concurrently.
	Ready func() error
}

// Bounds of a connection before the upgrade to a WebSocket.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 30 * time.Second // until the next request, after a request for /readyz
	writeTimeout  = 10 * time.Second // for a response
	maxHeader     = 32 << 10
	maxConns      = 2 * maxClients // see gate.Limit; a principal has at most a quarter of them
)

// ServeWeb serves the clients that l accepts, each WebSocket with a call of serve, until ctx ends or l fails. It closes
// l, and returns after all calls of serve have returned. The error is nil if ctx ended.
//
// Every path serves WebSockets except /readyz and /healthz, which answer 200 without a token; /readyz answers 503 while
// o.Ready returns an error. Requests with an Origin are refused: they come from web pages, and browsers let any page open
// a WebSocket.
func ServeWeb(ctx context.Context, l net.Listener, o WebOptions, serve Handler) error {
	if o.Authenticate == nil {
		return errors.New("no tokens are configured, and WebSocket clients need one\nhint: corral config token NAME creates a token")
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &web{WebOptions: o, gate: gate.Gate{Hosts: o.Hosts}, ready: o.readiness(), ctx: ctx, serve: serve}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnContext: gate.WithConn, ConnState: gate.Watch, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // does not close WebSockets
	err := server.Serve(gate.Limit(l, maxConns))
	stop()
	canceled := ctx.Err() != nil
	_ = server.Close()
	cancel()
	h.conns.close()
	if canceled {
		return nil
	}
	return fmt.Errorf("serve websockets: %w", err)
}

// readiness returns whether requests would be served, for clients that have not authenticated: however often they ask, Ready is
// called and the log written at most once per second.
func (o *WebOptions) readiness() *gate.Readiness {
	if o.Ready == nil {
		return gate.NewReadiness(nil)
	}
	return gate.NewReadiness(func() error {
		err := o.Ready()
		if err != nil {
			o.Log.Warn("not ready", "error", err)
		}
		return err
	})
}

// A web is the HTTP handler of a server.
type web struct {
	WebOptions
	gate  gate.Gate
	ready *gate.Readiness
	ctx   context.Context //nolint:containedctx // of the server: a request's context ends when its connection is hijacked
	serve Handler
	conns connLimiter
	in    ratelimit.Shares // bytes of messages that are received, by client
}

// ServeHTTP implements http.Handler. The cheapest checks come first.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.gate.Host(r):
		h.refuse(w, r, http.StatusForbidden, "unknown host name: names other than localhost must be in the server's configuration")
		return
	case len(r.Header.Values("Origin")) > 0:
		h.refuse(w, r, http.StatusForbidden, "web pages may not call this server")
		return
	case r.URL.Path == "/readyz" && !h.ready.Is():
		h.refuse(w, r, http.StatusServiceUnavailable, "not ready: see the diagnostic log of the server")
		return
	case r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		health(w, r)
		return
	}
	token, ok := gate.Bearer(r)
	var who rpc.Caller
	if ok {
		who, ok = h.Authenticate(token)
	}
	if !ok || who.Principal == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="corral"`)
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusUnauthorized, "a valid bearer token is required: Authorization: Bearer TOKEN")
		return
	}
	if !h.conns.acquire(who.Principal) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "too many connections")
		return
	}
	defer h.conns.release(who.Principal)
	if !gate.Admit(r.Context(), who.Principal) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "too many connections")
		return
	}
	in := &share{of: &h.in, who: who.Principal}
	defer in.release()
	conn, err := accept(w, r, in)
	if err != nil { // the request has been answered
		h.Log.DebugContext(r.Context(), "websocket upgrade failed", "principal", who.Principal, "error", err)
		return
	}
	stop := h.recheck(conn, token, who)
	err = h.serve(h.ctx, conn, who)
	stop()
	_ = conn.Close()
	logEnd(h.Log, who.Principal, err)
}

// recheckInterval is how long a connection goes on with a token that is not accepted any more.
const recheckInterval = 500 * time.Millisecond

// recheck closes a connection when its token is not accepted any more, or its owner may use other repositories, until stop is
// called. stop waits for a check in progress.
func (h *web) recheck(conn *frameConn, token string, who rpc.Caller) (stop func()) {
	ctx, cancel := context.WithCancel(h.ctx)
	var checks sync.WaitGroup
	checks.Go(func() {
		tick := time.NewTicker(recheckInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			now, ok := h.Authenticate(token)
			if !ok || now.Principal != who.Principal || !slices.Equal(now.Repos, who.Repos) {
				h.Log.InfoContext(ctx, "websocket closed: its token was revoked or has expired, or its principal was changed", "principal", who.Principal)
				conn.revoked.Store(true)
				conn.close(websocket.StatusPolicyViolation, "the token is not accepted any more")
				return
			}
		}
	})
	return func() {
		cancel()
		checks.Wait()
	}
}

// health answers 200.
func health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // a client that is gone needs no answer
}

func (h *web) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	h.Log.DebugContext(r.Context(), "http request refused", "status", status, "reason", why, "remote", r.RemoteAddr)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, why, status)
}
