package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
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
