package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/gate"
)

// Path is where Serve has the server: http://127.0.0.1:7070/mcp.
const Path = "/mcp"

// HTTPOptions say how a Server is reached over HTTP.
type HTTPOptions struct {
	// Authenticate returns who has a bearer token, with Principal, Repos and Tools. It is required: the other fields of
	// the Caller are set here. It is called by several goroutines at once, and is to compare hashes.
	Authenticate func(token string) (Caller, bool)
	// Hosts are the names, with or without a port, that the server is called by, beside those of the loopback interface.
	Hosts []string
	// Origins are pages that may call it, as "https://app.example", beside those of Hosts and the loopback interface.
	Origins []string
	// MaxBody is how many bytes a message may have; 0, and what is more, is 10 MiB.
	MaxBody int64
	// Idle is after how long without a request a session ends; 0 is 30 minutes.
	Idle time.Duration
	// MaxSessions is how many sessions a principal has at most; 0 is 64.
	MaxSessions int
	// MaxConns is how many connections Serve has at most, and a principal a quarter of them; 0 is 512. Above it, those without
	// a token so far are closed for new ones, the oldest first, then those that wait for their next request.
	MaxConns int
}

// Times of one request. A client that is slower than these ends its own request, and nobody else's.
const (
	headerTime = 10 * time.Second // for the header
	bodyTime   = 30 * time.Second // for the body
	writeTime  = 30 * time.Second // for each piece of the answer
	keepTime   = 60 * time.Second // for the next request on the same connection
	// quietTime is after how long without an answer a stream begins, and after how long a quiet one gets a comment: Node's
	// fetch gives up on a header after 5 minutes, and proxies on a silent connection after one.
	quietTime = 15 * time.Second
)

const (
	maxHeader = 64 << 10
	maxBodies = 256 << 20     // bytes of bodies that are read or served at once, of all clients
	maxShare  = maxBodies / 4 // of one principal
)

// A web is the HTTP side of a Server.
type web struct {
	*Server
	door
	sessions *sessions
	bodies   *budget
	maxBody  int64
}

// Handler returns the HTTP side of the server: the Streamable HTTP transport of protocol versions 2025-03-26 to
// 2026-07-28, at whatever path it is mounted. It panics without Authenticate. Serve has the bounds on connections and
// headers that a Handler cannot have.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	if o.Authenticate == nil {
		panic("mcp: a handler without Authenticate would serve anybody")
	}
	return &web{
		Server:   s,
		door:     door{Gate: gate.Gate{Hosts: o.Hosts, Origins: o.Origins}, authenticate: o.Authenticate},
		sessions: &sessions{idle: orDuration(o.Idle, 30*time.Minute), max: orInt(o.MaxSessions, 64), ended: s.ended, all: map[string]*session{}},
		bodies:   newBudget(maxShare),
		maxBody:  maxBody(o.MaxBody),
	}
}

func maxBody(asked int64) int64 {
	if asked <= 0 || asked > maxLine {
		return maxLine
	}
	return asked
}

// Serve serves the clients that l accepts, at Path, until ctx ends or l fails. When ctx ends, calls under way are
// cancelled and have a second to end in; then the error is nil.
func (s *Server) Serve(ctx context.Context, l net.Listener, o HTTPOptions) error {
	if o.Authenticate == nil {
		return errors.New("nobody has a token, and without one nobody is served\nhint: corral config token NAME makes one")
	}
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	mux := http.NewServeMux()
	mux.Handle(Path, s.Handler(o))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       keepTime,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return calls },
		ConnContext:       gate.WithConn,
		ConnState:         gate.Watch,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(gate.Limit(l, orInt(o.MaxConns, 512))) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	cancel()
	patience, stop := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer stop()
	if err := server.Shutdown(patience); err != nil {
		_ = server.Close() // what does not end by itself is closed
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return nil
}

func orInt(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

func orDuration(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// ServeHTTP implements http.Handler. What is checked first costs least, and nothing of a body is read before it is known
// whose it is.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.Host(r):
		h.refuse(w, r, http.StatusForbidden, "this server is not called %q: names other than localhost are in its configuration", shown(r.Host))
		return
	case !h.Origin(r):
		h.refuse(w, r, http.StatusForbidden, "pages of %q may not call this server", shown(r.Header.Get("Origin")))
		return
	}
	if h.crossOrigin(w, r) {
		return
	}
	c, ok := h.caller(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer realm="corral"`)
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusUnauthorized, "a valid bearer token is wanted: Authorization: Bearer TOKEN")
		return
	}
	if !gate.Admit(r.Context(), c.Principal) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "all connections that one token may have are in use: close one, or wait for an answer")
		return
	}
	if name := repeated(r.Header); name != "" {
		h.refuse(w, r, http.StatusBadRequest, "the header %s is there twice", name)
		return
	}
	switch modern := isModern(r.Header.Get(sdk.HeaderProtocolVersion)); {
	case r.Method == http.MethodPost:
		h.post(w, r, c)
	case modern || r.Method != http.MethodGet && r.Method != http.MethodDelete:
		w.Header().Set("Allow", http.MethodPost)
		h.refuse(w, r, http.StatusMethodNotAllowed, "the method is POST")
	case r.Method == http.MethodGet:
		h.get(w, r, c)
	default:
		h.delete(w, r, c)
	}
}

// repeated returns the name of a header that is there twice, and of which who is between may have read the other; else
// "".
func repeated(head http.Header) string {
	for _, name := range []string{sdk.HeaderSessionID, sdk.HeaderProtocolVersion, sdk.HeaderMethod, sdk.HeaderName} {
		if len(head.Values(name)) > 1 {
			return name
		}
	}
	return ""
}

// isModern reports whether a header names a version without sessions that is served. Any word may be above the first.
func isModern(version string) bool {
	return sdk.IsModernProtocol(version) && sdk.IsValidProtocolVersion(version)
}

// crossOrigin lets the pages that may call the server read its answers, and answers a browser that asks for that first
// (Fetch, 3.2), which it does without a token.
func (h *web) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	head := w.Header()
	head.Set("Access-Control-Allow-Origin", origin)
	head.Add("Vary", "Origin")
	head.Set("Access-Control-Expose-Headers", sdk.HeaderSessionID+", WWW-Authenticate")
	if r.Method != http.MethodOptions {
		return false
	}
	head.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	head.Set("Access-Control-Allow-Headers", strings.Join([]string{
		"Authorization", "Content-Type", "Accept", "Traceparent", "Tracestate", sdk.HeaderSessionID, sdk.HeaderProtocolVersion,
		sdk.HeaderMethod, sdk.HeaderName, sdk.HeaderLastEventID,
	}, ", "))
	writeEmpty(w, http.StatusNoContent)
	return true
}

// refuse answers without a request's id: the request was not read, or has none.
func (h *web) refuse(w http.ResponseWriter, r *http.Request, status int, format string, values ...any) {
	e := refused(codeRequest, format, values...)
	h.log.DebugContext(r.Context(), "http request refused", "status", status, "reason", e.Message, "remote", r.RemoteAddr)
	writeJSON(w, status, errorOf(nil, e))
}

// writeJSON sends a whole answer.
func writeJSON(w http.ResponseWriter, status int, data []byte) {
	boundWrite(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that does not read its answer has none
}

// writeEmpty sends an answer without a body.
func writeEmpty(w http.ResponseWriter, status int) {
	boundWrite(w)
	w.WriteHeader(status)
}

// boundWrite bounds what is written next. The bound stays with the connection, so that each write needs its own.
func boundWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
}
