package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/front/supervisor"
	"corral/internal/gate"
	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/artifact"
	"corral/store/audit"
)

// Principals: "me" and "you" see their own jobs, "op" is an operator, "none" may not see the page.
const hostile = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\x1b]0;evil\a\u202e"

// A stage is a page with a supervisor, stored output and an audit log of the test.
type stage struct {
	*testing.T
	s       *Server
	address string

	mu      sync.Mutex
	now     time.Time              // guarded by mu
	access  map[string]Access      // guarded by mu
	revoked map[[32]byte]bool      // guarded by mu: tokens
	jobs    []wire.Entry           // guarded by mu
	killed  []string               // guarded by mu
	output  string                 // guarded by mu: of each running job, which goes on
	follows int                    // guarded by mu: followers of output at present
	audit   string                 // guarded by mu: directory of the log; "" is none
	stream  func(principal string) // guarded by mu: called when stored output is read; may be nil
}

func newStage(t *testing.T) *stage {
	t.Helper()
	g := &stage{T: t, now: time.Unix(1_800_000_000, 0), access: map[string]Access{"me": {Repos: []string{"app"}}, "you": {}, "op": {All: true}}}
	begun := time.Now().Add(-time.Minute).UnixNano()
	g.jobs = []wire.Entry{
		{Job: "job-mine", UID: 1000, Started: begun, CPU: 5e9, Memory: 9 << 20, MemoryNow: 8 << 20, Repo: "/srv/" + hostile, Tool: hostile, Command: "sh -c " + hostile, Principal: "me", Artifact: "runtime-app-1-0123456789abcdef"},
		{Job: "job-yours", UID: 1000, Started: begun, CPU: 1e9, Memory: 1 << 20, MemoryNow: -1, Repo: "/srv/app", Principal: "you"},
		{Job: "job-other", UID: 1000, Started: begun, CPU: -1, Memory: -1, MemoryNow: -1, Repo: "/srv/app"},
	}
	list, port, err := gate.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = list[0].Addr().String()
	g.s = New(Config{
		Port: port, Access: g.mayNow, Samples: supervisor.NewSampler(g.list), Kill: g.kill, Outputs: g, Follow: g.follow, Audit: g.openAudit,
		Log: slog.New(slog.DiscardHandler), Now: g.clock,
		Sessions: func(context.Context) ([]job.Session, error) {
			return []job.Session{{ID: "session-mine", Name: hostile, Repo: "/srv/" + hostile}, {ID: "session-yours", Repo: "/srv/b", Kept: true}}, nil
		},
		Owns: func(principal, session string) bool { return principal == "me" && session == "session-mine" },
		Denials: func() ([]wire.Denial, error) {
			return []wire.Denial{
				{At: 5e9, UID: 1000, Principal: "me", Tool: hostile, Repo: hostile, Reason: "cwd-mine " + hostile, Request: hostile},
				{At: 6e9, UID: 1000, Principal: "you", Job: "job-refused", Reason: "too many"},
			}, nil
		},
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

// change changes what the page works with.
func (g *stage) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *stage) mayNow(by gate.Holder) (Access, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.access[by.Principal]
	return a, ok && !g.revoked[by.Token]
}

func (g *stage) list(commands bool) ([]wire.Entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.Clone(g.jobs)
	for n := range list {
		if !commands {
			list[n].Command = ""
		}
	}
	return list, nil
}

func (g *stage) kill(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killed = append(g.killed, id)
	return nil
}

func (g *stage) openAudit() (*audit.Reader, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.audit == "" {
		return nil, errors.New("no log")
	}
	return audit.OpenReaderUnlocked(g.audit)
}

// follow writes the output of a job, and goes on until ctx ends.
func (g *stage) follow(ctx context.Context, _ string, w io.Writer, skipped func(int64)) error {
	g.mu.Lock()
	g.follows++
	text := g.output
	g.mu.Unlock()
	defer g.change(func() { g.follows-- })
	skipped(10)
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// stored is the output that is stored, one of "me" in another repository than its own.
func stored() []*artifact.Manifest {
	now := time.Unix(1_800_000_000, 0)
	one := func(handle, repo, principal string) *artifact.Manifest {
		return &artifact.Manifest{ArtifactID: handle, RepoID: repo, Principal: principal, Runtime: hostile, Status: "failure", CreatedAt: now, ExpiresAt: now.Add(time.Hour)}
	}
	return []*artifact.Manifest{one("of-me", "app", "me"), one("of-me-elsewhere", "lib", "me"), one("of-you", "app", "you")}
}

func (g *stage) List(r artifact.Reader, limit int) (list []*artifact.Manifest, err error) {
	for _, m := range stored() {
		if r.Owner || r.Principal == m.Principal && (r.Repos == nil || slices.Contains(r.Repos, m.RepoID)) {
			list = append(list, m)
		}
	}
	return list[:min(limit, len(list))], nil
}

func (g *stage) Find(_ context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error) {
	list, _ := g.List(r, 100)
	for _, m := range list {
		if m.ArtifactID == handle {
			return m, nil
		}
	}
	return nil, artifact.ErrNotFound
}

func (g *stage) Stream(ctx context.Context, r artifact.Reader, handle, _ string, w io.Writer) error {
	if _, err := g.Find(ctx, r, handle); err != nil {
		return err
	}
	g.mu.Lock()
	called := g.stream
	g.mu.Unlock()
	if called != nil {
		called(r.Principal)
	}
	_, err := io.WriteString(w, strings.Repeat("a line\n", 100_000)+hostile)
	return err
}

// by is a principal by its only token.
func by(principal string) gate.Holder { return gate.Holder{Principal: principal, Token: [32]byte{1}} }

// token returns the token of a new link.
func (g *stage) token(principal string) string {
	g.Helper()
	link, _, err := g.s.Link(by(principal))
	if err != nil {
		g.Fatal(err)
	}
	_, token, ok := strings.Cut(link, "/#login=")
	if !ok || !strings.HasPrefix(link, "http://"+g.host(principal)+"/") {
		g.Fatal(link)
	}
	return token
}

// host returns the host name at which a principal sees the page.
func (g *stage) host(principal string) string { return g.s.hosts.of(principal, g.s.c.Port) }

// own are the headers with which a browser sends a request of a principal's page itself.
func (g *stage) own(principal string) []string {
	host := g.host(principal)
	return []string{"Host: " + host, "Sec-Fetch-Site: same-origin", "Origin: http://" + host}
}

// A reply is what a browser got.
type reply struct {
	*http.Response
	body string
}

// send sends a request with headers "Name: value"; "Host: x" sets the host, which is that of "me" otherwise.
func (g *stage) send(method, target, body string, headers ...string) reply {
	g.Helper()
	r := g.request(g.Context(), method, target, body, headers...)
	got, err := g.client().Do(r)
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

func (g *stage) request(ctx context.Context, method, target, body string, headers ...string) *http.Request {
	g.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.address+target, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	r.Host = g.host("me")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r
}

func (g *stage) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", g.address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A person is a browser that has logged in.
type person struct {
	*stage
	principal string
	cookie    string // the header
	token     string // against forged requests
}

// log logs a person in.
func (g *stage) person(principal string) *person {
	g.Helper()
	got := g.send("POST", "/api/login", fmt.Sprintf(`{"token":%q}`, g.token(principal)), g.own(principal)...)
	cookies := got.Cookies()
	if got.StatusCode != http.StatusNoContent || len(cookies) != 1 {
		g.Fatalf("%s %s", got.Status, got.body)
	}
	p := &person{stage: g, principal: principal, cookie: "Cookie: " + cookies[0].Name + "=" + cookies[0].Value}
	var me struct{ Token string }
	if err := json.Unmarshal([]byte(p.get("/api/me").body), &me); err != nil || len(me.Token) != 64 {
		g.Fatalf("%v, %+v", err, me)
	}
	p.token = me.Token
	return p
}

// headers are those of a request of the person's page.
func (p *person) headers(more ...string) []string {
	return append(append(p.own(p.principal), p.cookie), more...)
}

func (p *person) get(target string) reply {
	p.Helper()
	return p.send("GET", target, "", p.headers()...)
}

func (p *person) post(target string) reply {
	p.Helper()
	return p.send("POST", target, "", p.headers(tokenHeader+": "+p.token)...)
}

// A feed is an open stream of events.
type feed struct {
	*http.Response
	stop func()
}

// feed opens a stream of events.
func (p *person) feed(target string) feed {
	p.Helper()
	ctx, stop := context.WithCancel(p.Context())
	p.Cleanup(stop)
	r, err := p.client().Do(p.request(ctx, "GET", target, "", p.headers()...))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { r.Body.Close() })
	return feed{r, stop}
}

// until reads until a text was sent, and returns what was.
func (f feed) until(t testing.TB, text string) string {
	t.Helper()
	var all strings.Builder
	b := make([]byte, 4096)
	found := make(chan error, 1)
	go func() {
		for !strings.Contains(all.String(), text) {
			n, err := f.Body.Read(b)
			all.Write(b[:n])
			if err != nil && !strings.Contains(all.String(), text) {
				found <- err
				return
			}
		}
		found <- nil
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Fatalf("%q was not sent: %v\n%s", text, err, all.String())
		}
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Fatalf("%q was not sent", text)
	}
	return all.String()
}

// burst is how many requests a principal may send at once.
func burst() int { return int(rate.Burst) }
