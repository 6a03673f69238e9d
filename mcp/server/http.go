package server

import (
	"cmp"
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
	"corral/internal/jsonrpc"
	"corral/mcp/tool"
)

// Path is where Serve has the server: http://127.0.0.1:7070/mcp.
const Path = "/mcp"

// HTTPOptions configure the HTTP side of a Server.
type HTTPOptions struct {
	// Authenticate returns the Caller with a bearer token; Principal, Repos and Tools must be set, the other fields are
	// ignored. It is required, is called concurrently, and should compare hashes so that its timing reveals nothing. It is
	// called again while a call runs or a stream is open, which end when the token is not accepted any more.
	Authenticate func(token string) (tool.Caller, bool)
	// Hosts are accepted Host headers, with or without a port, besides those of the loopback interface.
	Hosts []string
	// Origins are accepted Origin headers, as "https://app.example", besides those of Hosts and the loopback interface.
	Origins []string
	// MaxBody is the maximum length of a message in bytes; 0 and larger values mean 10 MiB.
	MaxBody int64
	// Idle is the time without a request after which a session expires; 0 is 30 minutes.
	Idle time.Duration
	// MaxSessions is the maximum number of sessions of a principal; 0 is 256.
	MaxSessions int
	// MaxConns is the maximum number of connections of Serve; a principal can have a quarter of them; 0 is 512. At
	// the maximum, a new connection evicts another: the oldest one that has not sent a valid token, else one that
	// is idle between requests.
	MaxConns int
	// Ready returns why no call could be served at present, for ReadyPath; nil if one could. It is called at
	// most once per second, and not concurrently. Without it, the server is always ready.
	Ready func() error
	// Metrics returns the text of MetricsPath, in the text format 0.0.4 of Prometheus, given the number of open connections and
	// sessions. It may be called concurrently. Without it, the path does not exist.
	Metrics func(connections, sessions int) ([]byte, error)
	// Previews answers a request for PreviewsPath of a principal with a status and JSON. It may be called concurrently. Without
	// it, the path does not exist.
	Previews func(principal string, r *http.Request) (status int, data []byte)
	// Page answers a request for PagePath, likewise.
	Page func(principal string, r *http.Request) (status int, data []byte)
}

// Timeouts of one request. A client that exceeds one loses its own request only.
const (
	headerTimeout = 10 * time.Second // for the header
	bodyTimeout   = 30 * time.Second // for the body
	writeTimeout  = 30 * time.Second // for each write of the response
	idleTimeout   = 60 * time.Second // idle, until the next request on the connection
	// keepAliveInterval is the time without a response after which a stream starts, and the interval of comments on a silent
	// one: Node's fetch gives up waiting for headers after 5 minutes, and proxies close silent connections after one.
	keepAliveInterval = 15 * time.Second
)

const (
	maxHeader = 64 << 10
	maxBodies = 256 << 20     // bytes of all bodies being read or served
	maxShare  = maxBodies / 4 // of one principal
	// Responses that clients have not read have a budget of the same size. What fits into this many bytes does not count:
	// the number of connections bounds it.
	freeResponse = 64 << 10
)

// A web is the HTTP side of a Server.
type web struct {
	*Server
	door
	sessions *sessions
	bodies   *budget
	answers  *budget // of responses being written
	maxBody  int64
}

// Handler returns an http.Handler for the Streamable HTTP transport of protocol versions 2025-03-26 to 2026-07-28, for any
// path. It panics if Authenticate is nil. Serve additionally bounds connections and headers, which a Handler cannot.
func (s *Server) Handler(o HTTPOptions) http.Handler { return s.newWeb(o) }

func (s *Server) newWeb(o HTTPOptions) *web {
	if o.Authenticate == nil {
		panic("mcp: HTTPOptions.Authenticate is nil")
	}
	return &web{
		Server: s,
		door:   door{Gate: gate.Gate{Hosts: o.Hosts, Origins: o.Origins}, authenticate: o.Authenticate},
		sessions: &sessions{
			idle: cmp.Or(o.Idle, 30*time.Minute), max: cmp.Or(o.MaxSessions, 256), ended: s.ended, log: s.log, all: map[string]*session{},
		},
		bodies:  newBudget(maxShare),
		answers: newBudget(maxShare),
		maxBody: maxBody(o.MaxBody),
	}
}

func maxBody(asked int64) int64 {
	if asked <= 0 || asked > maxLine {
		return maxLine
	}
	return asked
}

// Serve serves the clients that l accepts, at Path, until ctx ends or l fails. When ctx ends, calls in flight are cancelled
// and have one second to return; then Serve returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener, o HTTPOptions) error {
	if o.Authenticate == nil {
		return errors.New("no bearer token is configured, and every HTTP request needs one\nhint: create one with corral config token NAME")
	}
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	l = gate.Limit(l, cmp.Or(o.MaxConns, 512))
	mux, h := http.NewServeMux(), s.newWeb(o)
	mux.Handle(Path, h)
	mux.Handle(HealthPath, probe(nil))
	mux.Handle(ReadyPath, probe(o.Ready))
	if o.Metrics != nil {
		mux.HandleFunc(MetricsPath, h.measure(func() ([]byte, error) { return o.Metrics(gate.Open(l), h.sessions.count()) }))
	}
	if o.Previews != nil {
		mux.HandleFunc(PreviewsPath, h.links(o.Previews))
	}
	if o.Page != nil {
		mux.HandleFunc(PagePath, h.links(o.Page))
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return calls },
		ConnContext:       gate.WithConn,
		ConnState:         gate.Watch,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	cancel()
	patience, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	if err := server.Shutdown(patience); err != nil {
		_ = server.Close() // close connections that are still in use
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler. Cheap checks come first, and no byte of a body is read before the caller is
// authenticated.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.Host(r):
		h.refuse(w, r, http.StatusForbidden, "host name %q is not accepted: names other than localhost must be in the server's configuration", tool.Clip(r.Host))
		return
	case !h.Origin(r):
		h.refuse(w, r, http.StatusForbidden, "origin %q is not accepted", tool.Clip(r.Header.Get("Origin")))
		return
	}
	if h.crossOrigin(w, r) {
		return
	}
	c, ok := h.caller(r)
	if !ok {
		h.unauthorized(w, r)
		return
	}
	if !gate.Admit(r.Context(), c.Principal) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		h.refuse(w, r, http.StatusServiceUnavailable, "too many connections of this principal: close one, or wait for a response")
		return
	}
	if name := repeated(r.Header); name != "" {
		h.refuse(w, r, http.StatusBadRequest, "duplicate header %s", name)
		return
	}
	switch modern := isModern(r.Header.Get(sdk.HeaderProtocolVersion)); {
	case r.Method == http.MethodPost:
		h.post(w, r, c)
	case modern || r.Method != http.MethodGet && r.Method != http.MethodDelete:
		w.Header().Set("Allow", http.MethodPost)
		h.refuse(w, r, http.StatusMethodNotAllowed, "method not allowed: use POST")
	case r.Method == http.MethodGet:
		h.get(w, r, c)
	default:
		h.delete(w, r, c)
	}
}

// repeated returns the name of a duplicate header, else "". A proxy between client and server may have evaluated another of
// the values than this server would.
func repeated(head http.Header) string {
	for _, name := range []string{sdk.HeaderSessionID, sdk.HeaderProtocolVersion, sdk.HeaderMethod, sdk.HeaderName} {
		if len(head.Values(name)) > 1 {
			return name
		}
	}
	return ""
}

// isModern reports whether version is a supported protocol version without sessions. IsModernProtocol alone is true for any
// string that sorts after the first such version.
func isModern(version string) bool {
	return sdk.IsModernProtocol(version) && sdk.IsValidProtocolVersion(version)
}

// crossOrigin adds the CORS headers with which a browser lets accepted origins read responses. It answers preflight requests
// (Fetch, 3.2), which have no token, and then returns true.
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

// unauthorized refuses a request without a valid token.
func (h *web) unauthorized(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="corral"`)
	w.Header().Set("Connection", "close")
	h.refuse(w, r, http.StatusUnauthorized, "a valid bearer token is required: Authorization: Bearer TOKEN")
}

// refuse sends a JSON-RPC error with a null id, for a request whose body was not parsed, or that has no body.
func (h *web) refuse(w http.ResponseWriter, r *http.Request, status int, format string, values ...any) {
	e := jsonrpc.Errorf(jsonrpc.CodeRequest, format, values...)
	h.log.DebugContext(r.Context(), "http request refused", "status", status, "reason", e.Message, "remote", r.RemoteAddr)
	writeJSON(w, status, dialect.Error(nil, e))
}

// writeJSON sends a complete response.
func writeJSON(w http.ResponseWriter, status int, data []byte) {
	boundWrite(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that does not read loses its response
}

// writeEmpty sends a response without a body.
func writeEmpty(w http.ResponseWriter, status int) {
	boundWrite(w)
	w.WriteHeader(status)
}

// boundWrite sets the deadline of the next write. It stays set on the connection, so each write needs a new one.
func boundWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not every ResponseWriter supports it
}
