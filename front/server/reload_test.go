package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcpserver "corral/mcp/server"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// A reloadable is a server of several clients whose configuration a test changes. Its supervisor has ended.
type reloadable struct {
	*reloader
	t      *testing.T
	b      *Backend
	server *mcpserver.Server
	file   string
	log    sandboxtest.Output
}

func newReloadable(t *testing.T, text string) *reloadable {
	t.Helper()
	v := &reloadable{t: t, file: filepath.Join(t.TempDir(), "config.yaml")}
	v.write(text)
	s := &serving{names: "plain", from: []config.Source{{Path: v.file}}}
	c, _, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	v.b, v.server = alone(t, c, &v.log)
	t.Cleanup(v.b.Close)
	v.reloader = s.newReloader(v.b, s.tokensOf(v.b))
	v.prepare = s.replaceTools(v.b, v.server)
	return v
}

func (v *reloadable) write(text string) {
	v.t.Helper()
	// As a whole: a reader sees the former file or this one.
	err := os.WriteFile(v.file+".new", []byte("version: 1\n"+text), 0o600)
	if err == nil {
		err = os.Rename(v.file+".new", v.file)
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

// execute calls runtime_execute in a repository and returns the text of the answer.
func (v *reloadable) execute(repo string) string {
	v.t.Helper()
	return exchange(v.t, v.server, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"runtime_execute","arguments":{"repoId":"%s","runtime":"shell","code":"true"}}}`, repo))
}

// Parts of answers: without a supervisor no job can be run, and no denial be recorded.
const (
	noSupervisor = `"message\":\"no supervisor`
	deniedText   = `"message\":\"audit: no supervisor`
)

// TestReload: after a reload, calls use the repositories, principals and rules of the new configuration. A call in a repository
// that was removed says so. A faulty configuration changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	_, hash := config.NewToken()
	v := newReloadable(t, "repos: [{id: a, path: "+a+"}]\n")
	if got := v.execute("a"); !strings.Contains(got, noSupervisor) {
		t.Fatal(got)
	}
	v.write(fmt.Sprintf("repos: [{id: b, path: %s}]\nprincipals: [{name: ci, token_sha256: \"%x\"}]\nhttp: {listen: '127.0.0.1:1'}\nruntime: {runtimes: [shell]}\n", b, hash))
	if err := v.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := v.execute("a"); !strings.Contains(got, "Repository a not found: the operator has removed it") {
		t.Errorf("a removed repository: %s", got)
	}
	if got := v.execute("b"); !strings.Contains(got, noSupervisor) {
		t.Errorf("an added repository: %s", got)
	}
	if p := v.tokens.current(); len(p) != 1 || p[0].Name != "ci" {
		t.Errorf("principals %+v", p)
	}
	if !strings.Contains(v.log.String(), `"key":"http.listen"`) || strings.Contains(v.log.String(), `"key":"runtime`) {
		t.Errorf("keys that need a restart: %s", v.log.String())
	}
	good := v.running
	for _, tt := range []struct{ name, text, want string }{
		{"a mistake", "repos: [{id: a, path: " + a + "}]\nruntime: {max_duration: soon}\n", "max_duration"},
		{"rules that cannot be read", "repos: [{id: a, path: " + a + "}]\nruntime: {rules: " + dir + "/none.star}\n", "none.star"},
	} {
		v.write(tt.text)
		if err := v.reload(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := v.execute("b"); !strings.Contains(got, noSupervisor) || config.Changed(good, v.running) != nil {
			t.Errorf("%s changed something: %s", tt.name, got)
		}
	}
	v.write("repos: [{id: b, path: " + b + "}]\nruntime: {enabled: false}\n")
	if err := v.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := v.execute("b"); !strings.Contains(got, deniedText) {
		t.Errorf("rules: %s", got)
	}
	v.write("")
	if err := v.reload(t.Context()); err != nil {
		t.Errorf("no repository: %v", err)
	}
	if got := v.execute("b"); !strings.Contains(got, "removed it") {
		t.Errorf("the last repository was removed: %s", got)
	}
}

// TestFollow: a server without signals reads its configuration again before the next message if it was changed, and only then.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	v := newReloadable(t, "repos: [{id: a, path: "+dir+"}]\n")
	follow := v.follow(t.Context())
	reloads := func() int { return strings.Count(v.log.String(), "configuration reloaded") }
	follow()
	if n := reloads(); n != 0 {
		t.Errorf("%d reloads of the same configuration", n)
	}
	v.write("repos: [{id: a, path: " + dir + "}]\nruntime: {enabled: false}\n")
	follow()
	follow()
	if got := v.execute("a"); !strings.Contains(got, deniedText) || reloads() != 1 {
		t.Errorf("%d reloads: %s", reloads(), got)
	}
	v.write("repos: nonsense\n")
	follow()
	follow()
	if n := strings.Count(v.log.String(), "the former one applies"); n != 1 || !strings.Contains(v.execute("a"), deniedText) {
		t.Errorf("a mistake is logged %d times", n)
	}
}

// TestPrincipalBounded: a principal whose entry was added or changed while the server runs has the bounds of that entry from its first call
// on, without a reload: its token is accepted then.
func TestPrincipalBounded(t *testing.T) {
	repo := "repos: [{id: a, path: " + t.TempDir() + "}]\nnetwork: {allow: [{preset: npm}, {preset: pypi}]}\n"
	token, hash := config.NewToken()
	entry := func(network string) string {
		return fmt.Sprintf("principals: [{name: ci, token_sha256: \"%x\", network: %s}]\n", hash, network)
	}
	v := newReloadable(t, repo)
	e, err := v.b.Engine(v.b.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ network, allowed, denied string }{{"npm", "npm", "pypi"}, {"pypi", "pypi", "npm"}, {"none", "none", "npm"}} {
		v.write(repo + entry(tt.network))
		sandboxtest.Eventually(t, time.Minute, "the files are read again", func() bool {
			p, ok := v.tokens.authenticate(token)
			return ok && p.Network == tt.network
		})
		for network, allowed := range map[string]bool{tt.allowed: true, tt.denied: false} {
			d, err := e.Policy.Decide(t.Context(), &job.Request{
				Principal: "token:ci", Repo: "a", Runtime: "shell", Code: new("true"), Tool: "runtime_execute", Network: network,
			})
			if err != nil || d.Allowed() != allowed || !allowed && d.Rule != "network" {
				t.Errorf("network %s: a request for %s: %+v, %v", tt.network, network, d, err)
			}
		}
	}
}

// TestReloadRace: calls during many reloads with different repositories are answered by one configuration or the other.
func TestReloadRace(t *testing.T) {
	dir := t.TempDir()
	entry := func(name string) string { return "{id: " + name + ", path: " + filepath.Join(dir, name) + "}" }
	v := newReloadable(t, "repos: ["+entry("a")+"]\n")
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := v.execute("a"); !strings.Contains(got, noSupervisor) {
					t.Errorf("in a repository that always is there: %s", got)
					return
				}
				if got := v.execute("b"); !strings.Contains(got, noSupervisor) && !strings.Contains(got, "Repository b not found") {
					t.Errorf("in one that comes and goes: %s", got)
					return
				}
			}
		})
	}
	for n := range sandboxtest.Scale(200) {
		v.write("repos: [" + entry("a") + []string{"", ", " + entry("b")}[n%2] + "]\n")
		if err := v.reload(t.Context()); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	clients.Wait()
	if removed := v.removed(nil); len(removed) != 2 || slices.Contains(RepoIDs(removed), "") {
		t.Errorf("%+v is remembered after many reloads", removed)
	}
}

// TestSharesOfNewPrincipal: a principal that was added while the server runs has the session that its tools need.
func TestSharesOfNewPrincipal(t *testing.T) {
	s := &serving{}
	shares := s.shares(config.Config{})
	now := config.Principals{}
	s.principals = func() config.Principals { return now }
	if shares("token:ci") {
		t.Error("nobody's jobs share")
	}
	now = config.Principals{{Name: "ci", Tools: []string{"agent"}}, {Name: "other"}}
	if !shares("token:ci") || shares("token:other") || shares("user:ci") {
		t.Error("the jobs of a new principal with tools: [agent] share, and no others")
	}
}

// TestCurrentCaller: a connection keeps what its token may use now, and nothing once the token is revoked.
func TestCurrentCaller(t *testing.T) {
	now := config.Principals{{Name: "ci", Repos: []string{"a"}}, {Name: "tools", Tools: []string{"runtime_execute"}}, {Name: "old", Expires: 1}}
	e := &execListeners{tokens: &tokens{now: now, after: time.Now().Add(time.Hour)}}
	for principal, want := range map[string]bool{"token:ci": true, "token:tools": false, "token:old": false, "token:gone": false, "user:ada": true} {
		who, ok := e.currentCaller(callerNamed(principal))
		if ok != want || principal == "token:ci" && !slices.Equal(who.Repos, []string{"a"}) {
			t.Errorf("%s: %t, %+v", principal, ok, who)
		}
	}
}
