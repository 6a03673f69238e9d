// Package page shows a person what jobs of a server do, in a browser of this machine: running jobs, their use of CPU and memory,
// their output, what ended, sessions, what was denied, and the audit log. It changes nothing, but can end a job, as corral kill does.
//
// The people and programs that ask, what they control, and what bounds it:
//
//   - Programs and users of this machine can connect, and pages of any site can have a browser connect. The host name of the page is
//     random for each start of the server and each principal: a page of another site, a server of another user at another port, or
//     another principal does not know the name to which the browser would send the cookie. Browsers send cookies to all ports of a
//     host. Requests with another Host are refused before anything else of them is looked at, and so are requests whose Origin or
//     Sec-Fetch-Site says that another page sent them. 256 connections; those that have not logged in make room for others.
//   - A person logs in by a link that a principal with the right makes with its token. It is valid for five minutes, once; its token is
//     in the fragment, which browsers send to nobody. The cookie ends an hour after its last use, after twelve hours, with the server,
//     and with the token that made the link or the right of its principal. A principal has eight links and eight cookies.
//   - A principal sees the jobs that it started, and an operator all of the server's user; the supervisor tells no others. Ending a job
//     takes a token that only a page of this origin can read. A principal sends 20 requests per second, and has 8 streams of events;
//     all have 64. Two requests at a time read stored output or the audit log, one of each principal.
//   - Jobs and clients choose texts: output, names of repositories and tools, records. Package text escapes what is not printable,
//     each text is cut, and the page adds them as text, never as HTML. Its policy allows no script and no style but those of its files,
//     and connections to its own origin alone.
//   - A browser that does not read holds up nothing: a stream sends the newest state and keeps none for it, and ends when a write takes
//     ten seconds. Of the output of a running job, 64 KiB are kept for all that look at it; of stored output, the last 256 KiB are sent.
package page

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"corral/front/supervisor"
	"corral/internal/gate"
	"corral/internal/ratelimit"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/artifact"
	"corral/store/audit"
)

// An Access is what a principal may see.
type Access struct {
	// All is set for an operator, who sees the jobs of all principals, and the audit log.
	All bool
	// Repos are ids of the repositories whose stored output a principal sees; nil is all.
	Repos []string
}

// Outputs have the stored output of jobs. *store.Artifacts implements it.
type Outputs interface {
	// List returns at most limit manifests that r may read, the latest first.
	List(r artifact.Reader, limit int) ([]*artifact.Manifest, error)
	// Find returns the manifest with a handle, if r may read it.
	Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error)
	// Stream writes a stream of the output, stdout or stderr, to w.
	Stream(ctx context.Context, r artifact.Reader, handle, stream string, w io.Writer) error
}

// Config is the configuration of a page. All fields but Audit and Now are required.
type Config struct {
	// Port is the port at which browsers reach the server.
	Port uint16
	// Access returns what a principal may see now; false: nothing, or the token is not valid any more.
	Access  func(by gate.Holder) (Access, bool)
	Samples *supervisor.Sampler
	Kill    func(job string) error
	Outputs Outputs
	// Sessions lists the sessions of the server's user, and Owns reports whether a principal has one of them.
	Sessions func(ctx context.Context) ([]job.Session, error)
	Owns     func(principal, session string) bool
	// Denials lists the requests of the server's user that were denied or refused lately, the oldest first.
	Denials func() ([]wire.Denial, error)
	// Follow writes the output of a running job to w until it ends, after it has called skipped, as live.Follow.
	Follow func(ctx context.Context, handle string, w io.Writer, skipped func(bytes int64)) error
	// Audit opens the audit log; nil: it cannot be read.
	Audit func() (*audit.Reader, error)
	Log   *slog.Logger
	Now   func() time.Time // nil is time.Now
}

// A Server serves the page.
type Server struct {
	c       Config
	hosts   hosts
	grants  *gate.Grants[string] // the places are host names
	rates   rates
	streams ratelimit.Shares // that are open, by principal
	tails   tails
	turns   *turns
	mux     *http.ServeMux
}

const (
	// linkTime is how long a link can be opened.
	linkTime = 5 * time.Minute
	// cookieTime is how long a person stays logged in.
	cookieTime = 12 * time.Hour
	// idleTime is how long a person stays logged in who does nothing.
	idleTime = time.Hour
	// maxGrants is the maximum number of links that are not opened, and of browsers that are logged in, of a principal.
	maxGrants = 8

	// Timeouts and bounds of connections.
	bodyTimeout    = 10 * time.Second
	maxHeader      = 16 << 10
	maxConnections = 256
)

// New returns a server without links.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{
		c: c, grants: gate.NewGrants[string](gate.GrantOptions{Link: linkTime, Cookie: cookieTime, Idle: idleTime, Max: maxGrants}),
		turns: newTurns(),
	}
	s.tails.follow = c.Follow
	s.mux = s.routes()
	return s
}

// ErrNoAccess is returned to a principal that may not see the page.
var ErrNoAccess = errors.New("this principal may not see the page")

// Link returns a link by which a person logs in as a principal. It can be opened once and until expires.
func (s *Server) Link(by gate.Holder) (url string, expires time.Time, err error) {
	if _, ok := s.c.Access(by); !ok {
		return "", time.Time{}, ErrNoAccess
	}
	host := s.hosts.of(by.Principal, s.c.Port)
	token, expires := s.grants.Link(by, host, s.c.Now())
	return "http://" + host + "/#login=" + token, expires, nil
}

// Serve serves listeners until ctx ends.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return gate.Site{Handler: s, MaxHeader: maxHeader, MaxConnections: maxConnections, Log: s.c.Log}.Serve(ctx, listeners...)
}

// routes returns the handlers of all paths.
func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	for _, f := range files() {
		m.HandleFunc("GET "+f.path, f.serve)
	}
	m.HandleFunc("POST /api/login", s.login)
	for pattern, h := range map[string]handler{
		"GET /api/me":                        s.me,
		"GET /api/jobs/{job}":                s.job,
		"GET /api/history":                   s.history,
		"GET /api/history/{handle}":          s.stored,
		"GET /api/history/{handle}/{stream}": s.storedOutput,
		"GET /api/audit":                     s.audit,
		"GET /api/sessions":                  s.sessions,
		"GET /api/denied":                    s.denied,
		"POST /api/jobs/{job}/end":           s.end,
		"POST /api/logout":                   s.logout,
	} {
		m.HandleFunc(pattern, s.known(h))
	}
	m.HandleFunc("GET /api/events", s.streaming(s.events))
	m.HandleFunc("GET /api/jobs/{job}/output", s.streaming(s.liveOutput))
	return m
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	private(w.Header())
	if !s.hosts.has(r.Host) {
		say(w, http.StatusMisdirectedRequest, "This is not the host name of the page.\nOpen a link to it, as POST /page of corral serve makes them.")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// private sets what all responses have: no cache keeps them, no other site includes them or has a handle of their window, and the page
// runs and loads nothing but its own files.
func private(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'; webrtc 'block'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=(), clipboard-read=()")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Dns-Prefetch-Control", "off")
	h.Set("X-Frame-Options", "DENY")
}
