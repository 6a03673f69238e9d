package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// tokens returns a configuration and a function that runs corral token on it, and returns its output.
func (p *place) tokens(t *testing.T) (file string, token func(args ...string) string) {
	t.Helper()
	conf := filepath.Join(p.dir, "conf")
	file = filepath.Join(conf, "config.yaml")
	if err := errors.Join(os.Mkdir(conf, 0o700), os.Rename(p.config(t, ""), file), os.Chown(conf, p.uid, p.uid), os.Chown(file, p.uid, p.uid)); err != nil {
		t.Fatal(err)
	}
	return file, func(args ...string) string {
		t.Helper()
		cmd := p.front(append([]string{"token"}, append(args, "--config", file)...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("corral token %q: %v: %s", args, err, errs.String())
		}
		return strings.TrimSpace(string(out))
	}
}

// TestTokenOfRunningServer: a server that runs accepts a token that was made since it started, both tokens during the grace of
// a rotation, and none after the principal was revoked.
func TestTokenOfRunningServer(t *testing.T) {
	sandboxtest.RequireJails(t)
	p, d := newPlace(t), daemon(t)
	file, token := p.tokens(t)
	keeper := token("create", "keeper")
	w := p.webAt(t, d, file)
	status := func(token string) int {
		code, _, _ := w.post(token, "", hello)
		return code
	}
	becomes := func(what string, token string, want int) {
		t.Helper()
		sandboxtest.Eventually(t, 20*time.Second, what, func() bool { return status(token) == want })
	}
	first := token("create", "ci", "--expires", "1h")
	becomes("a new token is accepted", first, http.StatusOK)
	second := token("rotate", "ci", "--grace", "1h")
	becomes("the rotated token is accepted", second, http.StatusOK)
	if got := status(first); got != http.StatusOK {
		t.Errorf("the former token during the grace: %d", got)
	}
	token("revoke", "ci")
	becomes("a revoked token is refused", second, http.StatusUnauthorized)
	if got := status(first); got != http.StatusUnauthorized {
		t.Errorf("the former token of a revoked principal: %d", got)
	}
	if got := status(keeper); got != http.StatusOK {
		t.Errorf("another principal: %d", got)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "principals.d", "keeper.yaml")); err != nil {
		t.Error(err)
	}
}

// A guest is a browser that has logged in to the page.
type guest struct {
	t                    *testing.T
	address, host, value string // address to connect to, host name of the page with its port, and cookie
}

// logIn opens a link to the page.
func logIn(t *testing.T, link string) *guest {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, address: "127.0.0.1:" + u.Port(), host: u.Host}
	r := g.send(http.MethodPost, "/api/login", `{"token":"`+strings.TrimPrefix(u.Fragment, "login=")+`"}`)
	defer r.Body.Close()
	for _, c := range r.Cookies() {
		g.value = c.Name + "=" + c.Value
	}
	if r.StatusCode != http.StatusNoContent || g.value == "" {
		t.Fatalf("%s: %s", link, r.Status)
	}
	return g
}

// send sends a request as the page does.
func (g *guest) send(method, target, body string) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.address+target, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Host = g.host
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", "http://"+g.host)
	r.Header.Set("Cookie", g.value)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	return response
}

func (g *guest) status() int {
	g.t.Helper()
	r := g.send(http.MethodGet, "/api/me", "")
	_ = r.Body.Close()
	return r.StatusCode
}

// TestLoginEndsWithItsToken: whoever has logged in to the page by a token is logged out with it, and open streams end: when it is replaced
// because others know it, and when its principal is removed and made again. It logs how long that takes.
func TestLoginEndsWithItsToken(t *testing.T) {
	sandboxtest.RequireJails(t)
	p, d := newPlace(t), daemon(t)
	file, token := p.tokens(t)
	first := token("create", "ada", "--tools", "page")
	w := p.webAt(t, d, file, "--page", "localhost:0")
	for _, tt := range []struct {
		what   string
		change func() string
	}{
		{"rotated", func() string { return token("rotate", "ada", "--grace", "0") }},
		{"made again", func() string { token("revoke", "ada"); return token("create", "ada", "--tools", "page") }},
	} {
		thief := logIn(t, w.pageLink(first))
		stream := thief.send(http.MethodGet, "/api/events", "")
		ended := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(stream.Body)
			ended <- string(b)
		}()
		second := tt.change()
		begun := time.Now()
		sandboxtest.Eventually(t, 20*time.Second, tt.what+": the former token is refused", func() bool {
			code, _, _ := w.post(first, "", hello)
			return code == http.StatusUnauthorized
		})
		refused := time.Since(begun)
		select {
		case text := <-ended:
			if !strings.HasSuffix(text, "event: end\ndata: {\"error\":\"not logged in\"}\n\n") {
				t.Errorf("%s: the stream ended with %q", tt.what, text[max(0, len(text)-200):])
			}
		case <-time.After(sandboxtest.Slow(20 * time.Second)):
			t.Errorf("%s: the stream goes on", tt.what)
		}
		t.Logf("%s: the token was refused after %v, the stream ended after %v", tt.what, refused, time.Since(begun))
		if got := thief.status(); got != http.StatusUnauthorized {
			t.Errorf("%s: whoever has logged in by the former token gets %d", tt.what, got)
		}
		if got := logIn(t, w.pageLink(second)).status(); got != http.StatusOK {
			t.Errorf("%s: by the new token: %d", tt.what, got)
		}
		first = second
	}
}

// TestReadyz: corral serve is ready while it is connected to a supervisor, and healthy also without one.
func TestReadyz(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	_, hash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("principals: [{name: a, token_sha256: \"%x\"}]\n", hash))
	status := func(path string) int {
		answer, err := http.Get(strings.TrimSuffix(w.url, "/mcp") + path) //nolint:noctx // the test ends with the server
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if health, ready := status("/healthz"), status("/readyz"); health != http.StatusOK || ready != http.StatusOK {
		t.Errorf("/healthz: %d, /readyz: %d", health, ready)
	}
	d.Stop(t)
	sandboxtest.Eventually(t, 20*time.Second, "the server is not ready without a supervisor", func() bool {
		return status("/readyz") == http.StatusServiceUnavailable
	})
	if got := status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz without a supervisor: %d", got)
	}
}
