package preview

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/gate"
	"corral/job"
)

// Sessions of two principals.
var (
	mine   = strings.Repeat("0a", 16)
	theirs = strings.Repeat("0b", 16)
)

// A stage is a server of previews, and a server that runs in each session of principal "me" and of "you".
type stage struct {
	*testing.T
	s       *Server
	address string
	port    uint16
	app     *httptest.Server

	mu      sync.Mutex
	now     time.Time         // guarded by mu
	ended   map[string]bool   // guarded by mu: sessions
	revoked map[[32]byte]bool // guarded by mu: tokens
	seen    []*http.Request   // guarded by mu: what the app got
	dialed  []string          // guarded by mu
	refuse  error             // guarded by mu: of connections
}

// newStage starts servers. answer may be nil.
func newStage(t *testing.T, answer http.HandlerFunc) *stage {
	t.Helper()
	g := &stage{T: t, now: time.Unix(1_800_000_000, 0), ended: map[string]bool{}}
	g.app = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.seen = append(g.seen, r)
		g.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "app %s %s", r.URL.RequestURI(), b)
	}))
	t.Cleanup(g.app.Close)
	list, port, err := gate.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address, g.port = list[0].Addr().String(), port
	g.s = New(Config{
		Port: port, Connect: g.connect, Has: g.has, Log: slog.New(slog.DiscardHandler), Now: g.clock,
		Secret: func(token string) bool { return token == "api-token" },
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.s.Serve(ctx, list...) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *stage) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *stage) has(by gate.Holder, session string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	principal := by.Principal
	return !g.revoked[by.Token] && !g.ended[session] && (principal == "me" && session == mine || principal == "you" && session == theirs)
}

func (g *stage) connect(ctx context.Context, session string, port uint16) (net.Conn, error) {
	g.mu.Lock()
	g.dialed = append(g.dialed, fmt.Sprintf("%s:%d", session, port))
	refuse := g.refuse
	g.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	if port != 8000 {
		return nil, job.NobodyListens(port)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", g.app.Listener.Addr().String())
}

// requests returns what the app got since the last call.
func (g *stage) requests() []*http.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.seen
	g.seen = nil
	return list
}

// name returns the host of a preview, with the port.
func (g *stage) name(session string, port uint16) string {
	return fmt.Sprintf("%s:%d", place{session, port}.host(), g.port)
}

// A browser keeps cookies by host, and connects to the stage whatever a host's name is.
func (g *stage) browser() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", g.address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// link returns a link of a principal's.
func (g *stage) link(principal, session string, port uint16) string {
	g.Helper()
	link, _, err := g.s.Link(gate.Holder{Principal: principal}, session, port)
	if err != nil {
		g.Fatal(err)
	}
	return link
}

// cookie opens a link, and returns the cookie as it is in later requests.
func (g *stage) cookie(link string) string {
	g.Helper()
	r, err := g.browser().Get(link)
	if err != nil {
		g.Fatal(err)
	}
	defer r.Body.Close()
	for _, c := range r.Cookies() {
		if c.Name == cookieName && r.StatusCode == http.StatusSeeOther {
			return cookieName + "=" + c.Value
		}
	}
	g.Fatalf("%s: %s, %q", link, r.Status, r.Header)
	return ""
}

// A reply is what a browser got.
type reply struct {
	*http.Response
	body string
}

// send sends a request to a host with headers "Name: value".
func (g *stage) send(method, host, target, body string, headers ...string) reply {
	g.Helper()
	r, err := http.NewRequest(method, "http://"+host+target, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	got, err := g.browser().Do(r)
	if err != nil {
		g.Fatal(err)
	}
	defer got.Body.Close()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		g.Fatal(err)
	}
	return reply{got, string(b)}
}

// raw sends bytes and returns the status of the first response, 0 if there is none.
func (g *stage) raw(text string) int {
	g.Helper()
	c, err := net.Dial("tcp", g.address)
	if err != nil {
		g.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		g.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0
	}
	if err != nil {
		g.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

// tokenOf returns the token of a link.
func (g *stage) tokenOf(link string) string {
	g.Helper()
	u, err := url.Parse(link)
	if err != nil {
		g.Fatal(err)
	}
	return u.Query().Get(tokenParameter)
}
