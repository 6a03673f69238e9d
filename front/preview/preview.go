// Package preview shows what servers in sessions serve to the browsers of the people who work with them.
//
// Each session and port has a host name of its own, pPORT-SESSION.localhost, which browsers resolve to the loopback interface.
// So each is an origin of its own: its pages read neither each other nor the API of the server, and have no cookies in common.
// A link can be opened once and within a short time; it is exchanged for a cookie that is valid for its host name alone.
//
// Nothing of what a server in a session sends is trusted. The package connects to no address: each connection is one to a port
// of a session, which the supervisor makes.
package preview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"corral/internal/gate"
	"corral/job"
)

// Config is the configuration of previews. All fields but Now and Secret are required.
type Config struct {
	// Port is the port at which browsers reach the server.
	Port uint16
	// Connect connects to a port of a session. Its errors are those of client.Client.Connect.
	Connect func(ctx context.Context, session string, port uint16) (net.Conn, error)
	// Has reports whether a session is open and the principal's, and the token valid.
	Has func(by gate.Holder, session string) bool
	// Secret reports whether a bearer token is one of the server's own, which no server in a session may see; nil: none is.
	Secret func(token string) bool
	Log    *slog.Logger
	Now    func() time.Time // nil is time.Now
}

// A Server serves previews.
type Server struct {
	c      Config
	grants *gate.Grants[place]
	proxy  *httputil.ReverseProxy
	pool   *http.Transport
}

const (
	// connectPatience is how long a server in a session may take to accept a connection.
	connectPatience = 10 * time.Second
	// idlePatience is how long a connection without a request is kept.
	idlePatience = time.Minute
	// maxHeader is the maximum size of the header of a request, and of a response, in bytes.
	maxHeader = 64 << 10
	// maxConnections is the maximum number of connections of a listener.
	maxConnections = 512
	// linkTime is how long a link can be opened.
	linkTime = 5 * time.Minute
	// grantTime is how long a browser that has opened a link sees the preview.
	grantTime = 12 * time.Hour
	// maxGrants is the maximum number of links that are not opened, and of browsers that have opened one, of a principal.
	maxGrants = 64
)

// New returns a server without links.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Secret == nil {
		c.Secret = func(string) bool { return false }
	}
	s := &Server{c: c, grants: gate.NewGrants[place](gate.GrantOptions{Link: linkTime, Cookie: grantTime, Max: maxGrants})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s.pool = &http.Transport{
		DialContext: s.dial, DisableCompression: true, MaxIdleConns: 64, MaxIdleConnsPerHost: 8, IdleConnTimeout: idlePatience,
		MaxResponseHeaderBytes: maxHeader, Protocols: protocols,
	}
	s.proxy = &httputil.ReverseProxy{
		Rewrite: s.rewrite, ModifyResponse: clean, ErrorHandler: s.failed, Transport: s.pool, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Link returns a link to a port of a session of the principal's, which can be opened once and until expires.
func (s *Server) Link(by gate.Holder, session string, port uint16) (url string, expires time.Time, err error) {
	at := place{session, port}
	if at.host() == "" || !s.c.Has(by, session) {
		return "", time.Time{}, fmt.Errorf("no session %.40q", session)
	}
	token, expires := s.grants.Link(by, at, s.c.Now())
	return fmt.Sprintf("http://%s:%d%s?%s=%s", at.host(), s.c.Port, openPath, tokenParameter, token), expires, nil
}

// Serve serves listeners until ctx ends.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	defer s.pool.CloseIdleConnections()
	return gate.Site{Handler: s, MaxHeader: maxHeader, MaxConnections: maxConnections, Log: s.c.Log}.Serve(ctx, listeners...)
}

// A place is a port of a session.
type place struct {
	session string
	port    uint16
}

// suffix is the domain of all previews. Browsers resolve names in it to the loopback interface (RFC 6761, 6.3).
const suffix = ".localhost"

// sessionLength is the length of a session's id: lower-case hexadecimal digits.
const sessionLength = 32

// host returns the host name of a place, or "" if there is none.
func (p place) host() string {
	if p.port == 0 || len(p.session) != sessionLength || strings.Trim(p.session, "0123456789abcdef") != "" {
		return ""
	}
	return fmt.Sprintf("p%d-%s%s", p.port, p.session, suffix)
}

// placeOf returns the place whose host name, with the port of previews, is the Host of a request.
func (s *Server) placeOf(host string) (place, bool) {
	name, port, err := net.SplitHostPort(strings.ToLower(host))
	if err != nil {
		name, port = strings.ToLower(host), "80"
	}
	p, ok := placeNamed(name)
	return p, ok && port == strconv.Itoa(int(s.c.Port))
}

// placeNamed returns the place with a host name.
func placeNamed(name string) (place, bool) {
	number, session, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, "p"), suffix), "-")
	port, err := strconv.ParseUint(number, 10, 16)
	p := place{session, uint16(port)}
	return p, err == nil && p.host() != "" && p.host() == name
}

// dial connects to the place that an address of the pool names.
func (s *Server) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p, ok := placeNamed(name)
	if !ok {
		return nil, fmt.Errorf("%q is no host name of a preview", address)
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	return s.c.Connect(ctx, p.session, p.port)
}

// failed answers a request that the server in the session did not.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, err error) {
	p, _ := placeNamed(r.URL.Hostname())
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Step == "session":
		gone(w)
	case errors.As(err, &refusal):
		say(w, http.StatusBadGateway, fmt.Sprintf("Nothing listens at port %d of the session.\n"+
			"Start the server there, at 127.0.0.1 or at all addresses, and load this page again.", p.port))
	case errors.Is(err, context.DeadlineExceeded):
		say(w, http.StatusGatewayTimeout, fmt.Sprintf("The server at port %d of the session does not answer.", p.port))
	default:
		s.c.Log.Debug("preview", "port", p.port, "error", err)
		say(w, http.StatusBadGateway, fmt.Sprintf("The server at port %d of the session sent no valid response.", p.port))
	}
}

// gone answers a request for a session that has ended. The browser removes what its pages have stored.
func gone(w http.ResponseWriter) {
	w.Header().Set("Clear-Site-Data", `"cache", "storage"`)
	say(w, http.StatusGone, "The session has ended, and its servers with it.\nAsk for a new link when another one runs.")
}

// say answers with a text for people, which nobody may keep.
func say(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	private(h)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a client that does not read loses its response
}

// private sets what all responses of previews have: no cache keeps them, no other origin includes them, and no address is told
// to other sites.
func private(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
}
