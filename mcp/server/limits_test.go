package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"corral/internal/gate"
	"corral/internal/test/sandboxtest"
)

// TestConnectionsWithoutTokenAreEvicted: connections without a token are evicted for new ones, whatever response they got.
func TestConnectionsWithoutTokenAreEvicted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	server := &http.Server{Handler: s.web, ConnContext: gate.WithConn, ConnState: gate.Watch} //nolint:gosec // only used by this test
	go func() { _ = server.Serve(gate.Limit(l, 2)) }()
	defer func() { _ = server.Close() }()
	for range 6 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("no response: %v", err)
		}
	}
	s.url = "http://" + l.Addr().String()
	s.open()
}

// TestIdleConnectionsAreEvicted: one principal's idle connections above the limit lock out nobody, neither others
// nor the principal itself.
func TestIdleConnectionsAreEvicted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- s.web.Serve(ctx, l, HTTPOptions{Authenticate: s.web.authenticate, MaxConns: 8})
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	// ask opens a connection, leaves it open, and returns the status line of the first response.
	ask := func(token string) string {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = fmt.Fprintf(c, "PUT /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", token)
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		status, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatalf("token %s: no response: %v", token, err)
		}
		return strings.TrimSpace(status)
	}
	const answered = "HTTP/1.1 405 Method Not Allowed"
	for _, token := range strings.Split("aaaaaaaaaaaabab", "") {
		if status := ask(token); status != answered && token == "b" {
			t.Errorf("token %s: %s", token, status)
		}
	}
	sandboxtest.Eventually(t, testTimeout, "token a gets no response although its connections are idle", func() bool { return ask("a") == answered })
}

// TestBodyBudgetPerPrincipal: a principal that has used up its share gets an error, and others are served.
func TestBodyBudgetPerPrincipal(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	one, other := s.open(), s.open("Authorization", "Bearer b")
	if !s.web.bodies.reserve("token:a", maxShare) || s.web.bodies.reserve("token:a", 1) {
		t.Fatal("cannot take a whole share")
	}
	if response, body := s.send("POST", ping, "Mcp-Session-Id", one); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
	if response, body := s.send("POST", ping, "Mcp-Session-Id", other, "Authorization", "Bearer b"); response.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
}

// TestAnnouncedBodyTakesLittle: a body that is announced but not sent takes little of the budget.
func TestAnnouncedBodyTakesLittle(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	from, to := io.Pipe()
	r := s.request(t.Context(), "POST", "")
	r.Body, r.ContentLength, r.Host = from, maxLine, "localhost"
	done := make(chan struct{})
	w := httptest.NewRecorder()
	go func() {
		defer close(done)
		s.web.ServeHTTP(w, r)
	}()
	_, _ = io.WriteString(to, "{") // is read
	taken, _ := s.web.bodies.held.Held()
	if taken < 1 || taken > 64<<10 {
		t.Errorf("%d bytes are taken for one", taken)
	}
	_ = to.Close()
	awaitClosed(t, "an answer", done)
	if w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}

// TestBodyBudgetGrowsWithBody: a body is read whole, and takes at most twice its size.
func TestBodyBudgetGrowsWithBody(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, firstRead + 1, 1 << 20} {
		for _, limit := range []int{size, maxLine} {
			m := &bodyBudget{budget: newBudget(maxShare), who: "a"}
			body, err := m.read(iotest.HalfReader(strings.NewReader(strings.Repeat("x", size))), int64(limit))
			if err != nil || string(body) != strings.Repeat("x", size) || m.size > int64(max(2*size, firstRead)) {
				t.Errorf("%d of at most %d: %d, %d taken, %v", size, limit, len(body), m.size, err)
			}
			m.releaseAll()
			if held, _ := m.held.Held(); held != 0 {
				t.Errorf("%d of at most %d: %d of the budget are held", size, limit, held)
			}
		}
	}
	m := &bodyBudget{budget: newBudget(maxShare), who: "a"}
	if _, err := m.read(strings.NewReader("xxx"), 1); err == nil {
		t.Error("a body above the limit was read")
	}
	m = &bodyBudget{budget: newBudget(firstRead), who: "a"}
	if _, err := m.read(strings.NewReader(strings.Repeat("x", firstRead+1)), maxLine); !errors.Is(err, errNoRoom) {
		t.Errorf("%v", err)
	}
	m.releaseAll()
	if held, _ := m.held.Held(); held != 0 {
		t.Errorf("%d of the budget are held", held)
	}
}

// TestRejectedMessageMemory: rejecting a message takes little memory besides the message.
func TestRejectedMessageMemory(t *testing.T) {
	var keys strings.Builder
	for n := 0; keys.Len() < maxLine-1000; n++ {
		fmt.Fprintf(&keys, `"%d":0,`, n)
	}
	many := keys.String()
	for name, text := range map[string]string{
		"keys of the envelope": `{` + many + `"id":1}`,
		"the same key":         `{"a":1,"a":1,` + many + `"id":1}`,
		"keys of params":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + many + `"a":1}}`,
		"keys of _meta":        `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":1},"_meta":{` + many + `"a":1}}}`,
		"keys of arguments":    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{` + many + `"a":1}}}`,
		"keys behind a fault":  `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":1},` + many + `"b":1}`,
		"no JSON":              `{` + many + `"id":1,}`,
	} {
		data := json.RawMessage(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := parseMessage(data)
		runtime.ReadMemStats(&after)
		if err == nil && m.fault == nil {
			t.Errorf("%s: not rejected", name)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s: %d MiB", name, took>>20)
		}
	}
}

// A stalledWriter is the response to a client that does not read.
type stalledWriter struct {
	*httptest.ResponseRecorder
	reads chan struct{} // closed when the client reads
}

func (w stalledWriter) Write(p []byte) (int, error) {
	<-w.reads
	return w.ResponseRecorder.Write(p)
}

// TestUnreadResponses: the responses that a principal's clients do not read take at most its share of the budget; further
// large ones are replaced by an error, small ones and those of other principals are not.
func TestUnreadResponses(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	const fit = 3
	one, other := s.open(), s.open("Authorization", "Bearer b")
	big := func(id int) string {
		return toCall(fmt.Sprint(id), "echo", `{"code":"`+strings.Repeat("x", 1<<20)+`"}`)
	}
	_, body := s.send("POST", big(10), "Mcp-Session-Id", one)
	size := int64(len(body))
	s.web.answers.share = fit*size + size/2
	taken := func() int64 {
		held, _ := s.web.answers.held.Held()
		return held
	}
	reads := make(chan struct{})
	var all sync.WaitGroup
	var stalled []stalledWriter
	for id := range fit {
		r := s.request(t.Context(), "POST", big(id), "Mcp-Session-Id", one)
		w := stalledWriter{httptest.NewRecorder(), reads}
		r.Host, stalled = "localhost", append(stalled, w)
		all.Go(func() { s.web.ServeHTTP(w, r) })
	}
	sandboxtest.Eventually(t, testTimeout, "responses that are not read", func() bool { return taken() > (fit-1)*size+size/2 })
	if _, body := s.send("POST", big(10), "Mcp-Session-Id", one); !strings.Contains(body, "was dropped: earlier responses") || !strings.Contains(body, `"id":10`) {
		t.Errorf("one more: %.200s", body)
	}
	if _, body := s.send("POST", toCall("11", "echo", `{}`), "Mcp-Session-Id", one); !strings.Contains(body, `"principal":"token:a"`) {
		t.Errorf("a small one: %.200s", body)
	}
	if _, body := s.send("POST", big(12), "Mcp-Session-Id", other, "Authorization", "Bearer b"); !strings.Contains(body, `"principal":"token:b"`) {
		t.Errorf("another principal's: %.200s", body)
	}
	close(reads)
	all.Wait()
	for _, w := range stalled {
		if !strings.Contains(w.Body.String(), `"principal":"token:a"`) {
			t.Errorf("%.200s", w.Body)
		}
	}
	if _, body := s.send("POST", big(13), "Mcp-Session-Id", one); !strings.Contains(body, `"principal":"token:a"`) {
		t.Errorf("when they are read: %.200s", body)
	}
	// A client has its response before the server records that it was read.
	sandboxtest.Eventually(t, testTimeout, "the whole share being free", func() bool { return taken() == 0 })
}
