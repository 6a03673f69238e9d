package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// A web is a running corral serve.
type web struct {
	*sandboxtest.Command
	t   *testing.T
	url string
	ids atomic.Int64 // of the last call
}

// web starts corral serve, and waits until it listens.
func (p *place) web(t *testing.T, d *sandboxtest.Supervisor, sections string) *web {
	t.Helper()
	return p.webAt(t, d, p.config(t, sections))
}

// webAt is web with the configuration in a file, and with more options.
func (p *place) webAt(t *testing.T, d *sandboxtest.Supervisor, file string, more ...string) *web {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", sandboxtest.Port(t))
	cmd := p.front(append([]string{"serve", "--listen", address, "--config", file, "--supervisor", d.Socket}, more...)...)
	w := &web{Command: sandboxtest.Start(t, cmd), t: t, url: "http://" + address + "/mcp"}
	sandboxtest.Eventually(t, 20*time.Second, "corral serve listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return w
}

// post sends one message and returns the status, the session and the answer.
func (w *web) post(token, session, message string) (int, string, *response) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url, strings.NewReader(message))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if n := bytes.LastIndex(b, []byte("data:")); n >= 0 {
		b = bytes.TrimSpace(b[n+len("data:"):])
	}
	a := &response{at: time.Now()}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, a); err != nil {
			w.t.Fatalf("%s: %v", b, err)
		}
	}
	return answer.StatusCode, answer.Header.Get("Mcp-Session-Id"), a
}

// end ends a session with DELETE.
func (w *web) end(token, session string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, w.url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Mcp-Session-Id", session)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		w.t.Errorf("DELETE: %d", answer.StatusCode)
	}
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// call calls a tool in a session.
func (w *web) call(token, session, tool, arguments string) *response {
	w.t.Helper()
	status, _, a := w.post(token, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`,
		w.ids.Add(1), tool, arguments))
	if status != http.StatusOK || a.Error != nil {
		w.t.Fatalf("%d, %+v", status, a.Error)
	}
	return a
}

// TestServe checks that over HTTP clients with a token are served, with the rights of the token.
func TestServe(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	var sections strings.Builder
	sections.WriteString("principals:\n")
	tokens := map[string]string{}
	for name, more := range map[string]string{"all": "", "other": ", repos: [other]", "reader": ", tools: [runtime_query_output]"} {
		token, hash := config.NewToken()
		tokens[name] = token
		fmt.Fprintf(&sections, "  - {name: %s, token_sha256: \"%x\"%s}\n", name, hash, more)
	}
	w := p.web(t, d, sections.String())
	for _, token := range []string{"", "corral_wrong"} {
		if status, _, _ := w.post(token, "", hello); status != http.StatusUnauthorized {
			t.Errorf("token %q: status %d", token, status)
		}
	}
	sessions := map[string]string{}
	for name, token := range tokens {
		status, session, a := w.post(token, "", hello)
		if status != http.StatusOK || session == "" || a.Error != nil {
			t.Fatalf("%s: status %d, session %q, %+v", name, status, session, a.Error)
		}
		sessions[name] = session
	}
	h := &host{t: t}
	o := h.outcome(w.call(tokens["all"], sessions["all"], "runtime_execute", `{"repoId":"app","runtime":"shell","code":"echo over http","outputMode":"summary"}`))
	if o.out() != "over http\n" || o.ArtifactHandle == nil {
		t.Fatalf("%+v", o)
	}
	query := `{"artifactHandle":"` + *o.ArtifactHandle + `","queryTerms":["http"]}`
	if a := w.call(tokens["all"], sessions["all"], "runtime_query_output", query); a.Result.IsError {
		t.Errorf("%s", a.Result.Structured)
	}
	if a := w.call(tokens["reader"], sessions["reader"], "runtime_query_output", query); !strings.Contains(string(a.Result.Structured), "NOT_FOUND") {
		t.Errorf("another principal can read it: %s", a.Result.Structured)
	}
	if o := h.outcome(w.call(tokens["other"], sessions["other"], "runtime_execute", `{"repoId":"app","runtime":"shell","code":"true"}`)); o.Code != "NOT_FOUND" {
		t.Errorf("%+v", o)
	}
	if _, _, a := w.post(tokens["reader"], sessions["reader"], `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`); len(a.Result.Tools) != 1 || a.Result.Tools[0].Name != "runtime_query_output" {
		t.Errorf("%+v", a.Result.Tools)
	}
	_ = w.Process.Signal(syscall.SIGTERM)
	<-w.Ended
}
