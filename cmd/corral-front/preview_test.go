package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// A visitor is a browser on this machine, for which names in localhost are 127.0.0.1.
func visitor(t *testing.T) func(link string) (int, string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
		},
	}}
	return func(link string) (int, string) {
		t.Helper()
		r, err := c.Get(link)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
}

// TestServePreview: a person sees what a server serves that an agent has started in the background, until the session ends. Another
// principal gets no link to it, and another browser does not see it.
func TestServePreview(t *testing.T) {
	sandboxtest.RequireJails(t)
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	p, d := newPlace(t), daemon(t)
	agent, agentHash := config.NewToken()
	other, otherHash := config.NewToken()
	w := p.webAt(t, d, p.config(t, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [agent]}\n"+
		"  - {name: b, token_sha256: \"%x\", tools: [agent]}\n", agentHash, otherHash)), "--preview", "localhost:0")
	_, session, _ := w.post(agent, "", hello)
	_, others, _ := w.post(other, "", hello)
	w.call(other, others, "run", `{"code":"true"}`)
	w.call(agent, session, "run", `{"code":"mkdir -p ~/www && echo hello from the jail >~/www/index.html && cd ~/www && exec python3 -m http.server --bind 127.0.0.1 8077","background":true}`)
	var found []string
	sandboxtest.Eventually(t, time.Minute, "the server listens", func() bool {
		found = w.links(agent, "")
		return len(found) == 1
	})
	if !strings.HasPrefix(found[0], "http://p8077-") {
		t.Fatal(found)
	}
	see, stranger := visitor(t), visitor(t)
	for range 2 { // a link that was opened leads this browser there again
		if code, text := see(found[0]); code != http.StatusOK || text != "hello from the jail\n" {
			t.Errorf("%d %q", code, text)
		}
	}
	if code, text := stranger(found[0]); code != http.StatusForbidden {
		t.Errorf("another browser: %d %q", code, text)
	}
	u, err := url.Parse(found[0])
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSuffix(strings.TrimPrefix(u.Hostname(), "p8077-"), ".localhost")
	if got := w.links(other, "?port=8077&session="+id); got != nil {
		t.Errorf("another principal: %q", got)
	}
	if got := w.links(agent, "?port=8078&session="+id); len(got) != 1 {
		t.Errorf("a port at which nobody listens yet: %q", got)
	} else if code, text := see(got[0]); code != http.StatusBadGateway || !strings.Contains(text, "Nothing listens at port 8078") {
		t.Errorf("%d %q", code, text)
	}
	w.end(agent, session)
	sandboxtest.Eventually(t, time.Minute, "the preview ends with the session", func() bool {
		code, _ := see("http://" + u.Host + "/")
		return code == http.StatusGone
	})
	if got := w.links(agent, "?port=8077"); got != nil {
		t.Errorf("after its end: %q", got)
	}
}
