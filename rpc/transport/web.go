package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"corral/internal/gate"
	"corral/rpc"
)

// WebOptions say who is served over a WebSocket.
type WebOptions struct {
	// Authenticate returns who has a bearer token. It is required, is called by several goroutines at once, and is to
	// compare hashes.
	Authenticate func(token string) (rpc.Caller, bool)
	// Hosts are the names, with or without a port, that the server is called by, beside those of the loopback interface.
	Hosts []string
	Log   *slog.Logger // of who is refused; required
	// Ready says for /readyz why requests would fail; nil is that they would not. It is called by several goroutines at once,
	// for anybody.
	Ready func() error
}

// Bounds of a connection before it is a WebSocket.
const (
	headerTime = 10 * time.Second
	keepTime   = 30 * time.Second // for the next request, after one for /readyz
	writeTime  = 10 * time.Second // for an answer
	maxHeader  = 32 << 10
	maxConns   = 2 * maxClients // see gate.Limit; a principal has a quarter of them at most
)

// ServeWeb serves the clients that l accepts, each WebSocket by a call of serve, until ctx ends or l fails. It closes l, and
// returns when every serve has. The error is nil when ctx ended.
//
// A WebSocket is at any path but /readyz and /healthz, which answer 200 without a token; /readyz answers 503 while o.Ready
// is an error. Whatever a web page sends is
// refused, known by its Origin: browsers let a page of anybody open a WebSocket.
func ServeWeb(ctx context.Context, l net.Listener, o WebOptions, serve Handler) error {
	if o.Authenticate == nil {
		return errors.New("nobody has a token, and without one nobody is served\nhint: corral config token NAME makes one")
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &web{WebOptions: o, gate: gate.Gate{Hosts: o.Hosts}, ctx: ctx, serve: serve}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, WriteTimeout: writeTime, IdleTimeout: keepTime, MaxHeaderBytes: maxHeader,
		ConnContext: gate.WithConn, ConnState: gate.Watch, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // which leaves WebSockets alone
	err := server.Serve(gate.Limit(l, maxConns))
	stop()
	told := ctx.Err() != nil
	_ = server.Close()
	cancel()
	h.places.end()
	if told {
		return nil
	}
	return fmt.Errorf("serve websockets: %w", err)
}

// A web is the HTTP side of a server.
type web struct {
	WebOptions
	gate   gate.Gate
	ctx    context.Context //nolint:containedctx // of the server: a request's own ends with the hand-over of its connection
	serve  Handler
	places places
}

// ServeHTTP implements http.Handler. What is checked first costs least.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.gate.Host(r):
		h.refuse(w, r, http.StatusForbidden, "this server has another name: names other than localhost are in its configuration")
		return
	case len(r.Header.Values("Origin")) > 0:
		h.refuse(w, r, http.StatusForbidden, "web pages may not call this server")
		return
	case r.URL.Path == "/readyz" && h.Ready != nil:
		if err := h.Ready(); err != nil {
			h.Log.WarnContext(r.Context(), "not ready", "error", err)
			h.refuse(w, r, http.StatusServiceUnavailable, "not ready: the log of the server says why")
			return
		}
		health(w, r)
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
		h.refuse(w, r, http.StatusUnauthorized, "a valid bearer token is wanted: Authorization: Bearer TOKEN")
		return
	}
	if !h.places.take(who.Principal) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "too many connections")
		return
	}
	defer h.places.give(who.Principal)
	if !gate.Admit(r.Context(), who.Principal) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "too many connections")
		return
	}
	conn, err := accept(w, r)
	if err != nil { // which was answered
		h.Log.DebugContext(r.Context(), "no websocket", "principal", who.Principal, "error", err)
		return
	}
	err = h.serve(h.ctx, conn, who)
	_ = conn.Close()
	ended(h.Log, who.Principal, err)
}

// health says that the server is there.
func health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // who does not read it knows nothing
}

func (h *web) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	h.Log.DebugContext(r.Context(), "http request refused", "status", status, "reason", why, "remote", r.RemoteAddr)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, why, status)
}
