package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/gate"
	"corral/mcp/tool"
)

// A httpSite is an HTTP server with two principals: tokens "a" and "b"; the latter may use the tool echo only.
type httpSite struct {
	*testing.T
	url    string
	web    *web
	server *httptest.Server
}

func newHTTPSite(t *testing.T, s *Server, o HTTPOptions) *httpSite {
	t.Helper()
	o.Authenticate = func(token string) (tool.Caller, bool) {
		switch token {
		case "a":
			return tool.Caller{Principal: "token:a"}, true
		case "b":
			return tool.Caller{Principal: "token:b", Tools: []string{"echo"}}, true
		case "nobody":
			return tool.Caller{}, true
		}
		return tool.Caller{}, false
	}
	h := s.Handler(o)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &httpSite{t, server.URL, h.(*web), server}
}

// request returns a request. headers are pairs of name and value. The value "-" removes a header, the prefix "+" of a name
// adds a second one, and "Host" sets the request's Host.
func (s *httpSite) request(ctx context.Context, method, body string, headers ...string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer a")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for n := 0; n < len(headers); n += 2 {
		switch {
		case headers[n] == "Host":
			r.Host = headers[n+1]
		case headers[n][0] == '+':
			r.Header.Add(headers[n][1:], headers[n+1])
		case headers[n+1] == "-":
			r.Header.Del(headers[n])
		default:
			r.Header.Set(headers[n], headers[n+1])
		}
	}
	return r
}

func (s *httpSite) send(method, body string, headers ...string) (*http.Response, string) {
	s.Helper()
	response, err := http.DefaultClient.Do(s.request(s.Context(), method, body, headers...))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response, string(data)
}

// open opens a session.
func (s *httpSite) open(headers ...string) (id string) {
	s.Helper()
	response, body := s.send("POST", initialize("2025-11-25"), headers...)
	if id = response.Header.Get(sdk.HeaderSessionID); response.StatusCode != http.StatusOK || len(id) < 32 {
		s.Fatalf("%d, session %q: %s", response.StatusCode, id, body)
	}
	return id
}

func modernCall(tool, meta string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` +
		strings.Replace(modernMeta, `{`, `{`+meta, 1) + `}}`
}

var modernHeaders = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}

// TestHTTP: requests with the expected status and text.
func TestHTTP(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{Hosts: []string{"corral.example", "other.example:7070"}, Origins: []string{"https://app.example"}})
	session := []string{"Mcp-Session-Id", s.open()}
	in := func(headers ...string) []string { return append(headers, session...) }
	modern := func(headers ...string) []string { return append(append([]string{}, modernHeaders...), headers...) }
	echo := modernCall("echo", "")
	rows := []struct {
		name, method, body string
		headers            []string
		status             int
		want               string
	}{
		{"ping", "POST", ping, in(), 200, `"result":{}`},
		{"notification", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, in(), 202, ""},
		{"an answer", "POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, in(), 202, ""},
		{"call", "POST", toCall("1", "echo", "{}"), in(), 200, `"principal":"token:a"`},
		{"call with a dotted name", "POST", toCall("1", "sdl.echo", "{}"), in(), 200, `"principal"`},
		{"argument twice", "POST", toCall("1", "echo", `{"code":1,"code":2}`), in(), 200, `INVALID_REQUEST`},
		{"trace in a header", "POST", toCall("1", "echo", "{}"), in("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), 200, `0af7651916cd43dd8448eb211c80319c`},
		{"no session", "POST", ping, nil, 400, "Mcp-Session-Id"},
		{"unknown session", "POST", ping, []string{"Mcp-Session-Id", "x"}, 404, "unknown session"},
		{"another's session", "POST", ping, in("Authorization", "Bearer b"), 404, "unknown session"},
		{"another's session deleted", "DELETE", "", in("Authorization", "Bearer b"), 404, "unknown session"},
		{"another's session listened to", "GET", "", in("Authorization", "Bearer b"), 404, "unknown session"},
		{"unknown version", "POST", ping, in("Mcp-Protocol-Version", "2024-01-01"), 400, "unsupported protocol version"},
		{"invalid version", "POST", ping, in("Mcp-Protocol-Version", "x"), 400, `"id":"ping","error":{"code":-32022,"message":"unsupported protocol version: \"x\" (supported: [2026-07-28 `},
		{"stream with an invalid version", "GET", "", in("Mcp-Protocol-Version", "x"), 400, "unsupported protocol version"},
		{"initialize with an invalid version", "POST", initialize("2025-06-18"), []string{"Mcp-Protocol-Version", "x", "Authorization", "Bearer b"}, 400, `"error":{"code":-32022,"message":"unsupported protocol version`},
		{"known version", "POST", ping, in("Mcp-Protocol-Version", "2025-06-18"), 200, `"result":{}`},
		{"no token", "POST", ping, in("Authorization", "-"), 401, "bearer token"},
		{"wrong token", "POST", ping, in("Authorization", "Bearer c"), 401, ""},
		{"unknown token", "POST", ping, in("Authorization", "Bearer nobody"), 401, ""},
		{"empty token", "POST", ping, in("Authorization", "Bearer "), 401, ""},
		{"another scheme", "POST", ping, in("Authorization", "Basic a"), 401, ""},
		{"a scheme in another case", "POST", ping, in("Authorization", "bearer a"), 200, ""},
		{"token too long", "POST", ping, in("Authorization", "Bearer "+strings.Repeat("a", gate.MaxToken+1)), 401, ""},
		{"initialize without a token", "POST", initialize("2025-06-18"), []string{"Authorization", "-"}, 401, ""},
		{"rebound name", "POST", ping, in("Host", "evil.example"), 403, "is not accepted"},
		{"rebound name that begins well", "POST", ping, in("Host", "localhost.evil.example"), 403, ""},
		{"rebound name with a port", "POST", ping, in("Host", "evil.example:80"), 403, ""},
		{"another address", "POST", ping, in("Host", "10.0.0.1:7070"), 403, ""},
		{"localhost", "POST", ping, in("Host", "LOCALHOST:1"), 200, ""},
		{"IPv6 loopback", "POST", ping, in("Host", "[::1]:7070"), 200, ""},
		{"configured name", "POST", ping, in("Host", "Corral.example"), 200, ""},
		{"configured name with any port", "POST", ping, in("Host", "corral.example:99"), 200, ""},
		{"configured port", "POST", ping, in("Host", "other.example:7070"), 200, ""},
		{"another port than configured", "POST", ping, in("Host", "other.example:7071"), 403, ""},
		{"foreign page", "POST", ping, in("Origin", "https://evil.example"), 403, "is not accepted"},
		{"page without an origin", "POST", ping, in("Origin", "null"), 403, ""},
		{"page of a file", "POST", ping, in("Origin", "file://localhost"), 403, ""},
		{"page with a user", "POST", ping, in("Origin", "http://evil.example@localhost"), 403, ""},
		{"page with a fragment", "POST", ping, in("Origin", "http://localhost#x"), 403, ""},
		{"page with a query", "POST", ping, in("Origin", "http://localhost?x"), 403, ""},
		{"page with an empty query", "POST", ping, in("Origin", "http://localhost?"), 403, ""},
		{"two sessions", "POST", ping, append(in(), "+Mcp-Session-Id", "x"), 400, "duplicate header"},
		{"two tokens", "POST", ping, in("+Authorization", "Bearer a"), 401, ""},
		{"local page", "POST", ping, in("Origin", "http://localhost:6274"), 200, ""},
		{"configured page", "POST", ping, in("Origin", "https://app.example"), 200, ""},
		{"configured page, but http", "POST", ping, in("Origin", "http://app.example"), 403, ""},
		{"own page", "POST", ping, in("Origin", "https://corral.example"), 200, ""},
		{"media type", "POST", ping, in("Content-Type", "text/plain"), 415, ""},
		{"media type with a charset", "POST", ping, in("Content-Type", "application/json; charset=utf-8"), 200, ""},
		{"accepts a picture", "POST", ping, in("Accept", "image/png"), 406, ""},
		{"accepts anything", "POST", ping, in("Accept", "*/*"), 200, ""},
		{"not JSON", "POST", `{`, in(), 400, "-32700"},
		{"nothing", "POST", ``, in(), 400, "-32700"},
		{"batch", "POST", `[` + ping + `]`, in(), 400, "batches"},
		{"key twice", "POST", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, in(), 400, "duplicate key"},
		{"PUT", "PUT", "", in(), 405, ""},
		{"invalid stream", "GET", "", in("Accept", "application/json"), 406, ""},

		{"2026 call", "POST", echo, modern(), 200, `"resultType":"complete"`},
		{"2026 call, a session is ignored", "POST", echo, modern("Mcp-Session-Id", "x"), 200, `"session":"token:a"`},
		{"2026 call with a label", "POST", modernCall("echo", `"corral/session":"one",`), modern(), 200, `"session":"token:a/`},
		{"2026 call with a label that is none", "POST", modernCall("echo", `"corral/session":{},`), modern(), 400, "-32602"},
		{"2026 call of a forbidden tool", "POST", modernCall("fails", ""), modern("Authorization", "Bearer b", "Mcp-Name", "fails"), 400, "unknown tool"},
		{"2026 call with a dotted name", "POST", modernCall("sdl.echo", ""), modern("Mcp-Name", "sdl.echo"), 200, "complete"},
		{
			"2026 method that is not served", "POST", strings.Replace(echo, "tools/call", "prompts/get", 1),
			modern("Mcp-Method", "prompts/get"), 404, "-32601",
		},
		{
			"2026 resource", "POST", strings.NewReplacer("tools/call", "resources/read", `"name":"echo"`, `"uri":"file:///x"`).Replace(echo),
			modern("Mcp-Method", "resources/read", "Mcp-Name", "file:///x"), 404, "-32601",
		},
		{"2026 name in base64", "POST", echo, modern("Mcp-Name", "=?base64?ZWNobw==?="), 200, "complete"},
		{"2026 another name", "POST", echo, modern("Mcp-Name", "sdl.echo"), 400, "-32020"},
		{"2026 no name", "POST", echo, modern("Mcp-Name", "-"), 400, "-32020"},
		{"2026 no method", "POST", echo, modern("Mcp-Method", "-"), 400, "-32020"},
		{"2026 another method", "POST", echo, modern("Mcp-Method", "tools/list"), 400, "-32020"},
		{"2026 no version in the header", "POST", echo, modern("Mcp-Protocol-Version", "-"), 400, "-32020"},
		{"2026 no version in the body", "POST", toCall("1", "echo", "{}"), modern(), 400, "-32602"},
		{"2026 another version", "POST", echo, modern("Mcp-Protocol-Version", "2025-11-25"), 400, "-32020"},
		{"a version to come", "POST", strings.Replace(echo, "2026-07-28", "2027-01-01", 1), modern("Mcp-Protocol-Version", "2027-01-01"), 400, "-32022"},
		{"2026 discover", "POST", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`, modern("Mcp-Method", "server/discover", "Mcp-Name", "-"), 200, "2026-07-28"},
		{"2026 unknown method", "POST", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{` + modernMeta + `}}`, modern("Mcp-Method", "no/such", "Mcp-Name", "-"), 404, "-32601"},
		{"2026 ping", "POST", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, modern("Mcp-Method", "ping", "Mcp-Name", "-"), 404, "-32601"},
		{"2026 notification", "POST", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modernMeta + `}}`, modern(), 202, ""},
		{"2026 answer", "POST", `{"jsonrpc":"2.0","id":1,"result":{},"params":{` + modernMeta + `}}`, modern(), 400, "-32600"},
		{"2026 without a token", "POST", echo, modern("Authorization", "-"), 401, ""},
		{"2026 stream", "GET", "", modern(), 405, ""},
		{"2026 end of a session", "DELETE", "", modern(session...), 405, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			response, body := (&httpSite{t, s.url, s.web, s.server}).send(row.method, row.body, row.headers...)
			if response.StatusCode != row.status || !strings.Contains(body, row.want) {
				t.Errorf("%d, want %d with %q: %.400s", response.StatusCode, row.status, row.want, body)
			}
			if row.status == 401 && !strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Error("no WWW-Authenticate")
			}
			if row.status == 405 && response.Header.Get("Allow") == "" {
				t.Error("no Allow")
			}
			if strings.HasPrefix(row.name, "2026") && response.Header.Get(sdk.HeaderSessionID) != "" {
				t.Error("a session was opened")
			}
		})
	}
	if n := len(s.web.sessions.all); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}

// TestBody: bodies are bounded with and without a Content-Length, and their budget is released.
func TestBody(t *testing.T) {
	t.Run("default", func(t *testing.T) { testBody(t, HTTPOptions{}, maxLine) })
	t.Run("configured", func(t *testing.T) { testBody(t, HTTPOptions{MaxBody: 4096}, 4096) })
	t.Run("more than a message may have", func(t *testing.T) { testBody(t, HTTPOptions{MaxBody: 2 * maxLine}, maxLine) })
}

func testBody(t *testing.T, o HTTPOptions, maximum int) {
	s := newHTTPSite(t, testServer(t), o)
	id := s.open()
	long := toCall("1", "denies", `{"code":"`+strings.Repeat("x", maximum)+`"}`)
	for _, told := range []bool{true, false} {
		r := s.request(t.Context(), "POST", long, "Mcp-Session-Id", id)
		if !told {
			r.ContentLength = -1
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil { // the server may close the connection before everything is sent
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("with Content-Length %v: status %d", told, response.StatusCode)
		}
	}
	if response, body := s.send("POST", long[:100]+strings.Repeat(" ", 1000), "Mcp-Session-Id", id); response.StatusCode != http.StatusBadRequest {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
	s.server.Close() // a handler releases its budget after it has responded
	if held, holders := s.web.bodies.held.Held(); held != 0 || holders != 0 {
		t.Error("the budget was not released")
	}
	s.web.bodies.held.Take("others", maxBodies, func(int64, int64) bool { return true })
	w := httptest.NewRecorder()
	r := s.request(t.Context(), "POST", ping, "Mcp-Session-Id", id)
	r.Host = "localhost"
	s.web.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("without budget: %d", w.Code)
	}
}

// TestPreflight: preflight requests of accepted origins get the CORS headers, others do not.
func TestPreflight(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	response, _ := s.send("OPTIONS", "", "Origin", "http://localhost:5000", "Authorization", "-")
	if response.StatusCode != http.StatusNoContent || response.Header.Get("Access-Control-Allow-Origin") != "http://localhost:5000" ||
		!strings.Contains(response.Header.Get("Access-Control-Allow-Headers"), "Mcp-Session-Id") {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	for _, headers := range [][]string{{"Origin", "http://evil.example"}, {"Authorization", "-"}} {
		if response, _ := s.send("OPTIONS", "", headers...); response.StatusCode/100 == 2 || response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v: %d", headers, response.StatusCode)
		}
	}
}

// TestSessionLabels: since 2026-07-28 a session is identified by principal and label.
func TestSessionLabels(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	key := func(token, meta string) string {
		_, body := s.send("POST", modernCall("echo", meta), append(modernHeaders, "Authorization", "Bearer "+token)...)
		var e struct{ Session string }
		if err := json.Unmarshal(decode(t, []byte(body)).Result.Structured, &e); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return e.Session
	}
	seen := map[string]bool{}
	for _, token := range []string{"a", "b"} {
		for _, meta := range []string{"", `"corral/session":"one",`, `"corral/session":"two",`} {
			k := key(token, meta)
			if seen[k] || k != key(token, meta) || !strings.HasPrefix(k, "token:"+token) {
				t.Errorf("%s %s: %s", token, meta, k)
			}
			seen[k] = true
		}
	}
}

// TestServe: the server serves its path, bounds its connections, and ends with its context.
func TestServe(t *testing.T) {
	g := newGated()
	s := New(Options{Tools: []tool.Tool{g}})
	if err := s.Serve(t.Context(), nil, HTTPOptions{}); err == nil || !strings.Contains(err.Error(), "hint: create one with corral config token") {
		t.Errorf("without Authenticate: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	const maximum = 8 // one principal has two of them: the server may not have noticed yet that the client closed one
	go func() {
		done <- s.Serve(ctx, l, HTTPOptions{MaxConns: maximum, Authenticate: func(string) (tool.Caller, bool) { return tool.Caller{Principal: "token:t"}, true }})
	}()
	site := &httpSite{t, "http://" + l.Addr().String() + Path, nil, nil}
	id := site.open()
	site.url = "http://" + l.Addr().String() + "/else"
	if response, _ := site.send("GET", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("another path: %d", response.StatusCode)
	}
	site.url = "http://" + l.Addr().String() + Path
	http.DefaultClient.CloseIdleConnections()
	// Connections without a request use up the limit until a client has a token.
	var silent [maximum]net.Conn
	for n := range silent {
		if silent[n], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(silent[n], "POST /mcp HTTP/1.1\r\n")
		defer func() { _ = silent[n].Close() }()
	}
	body := make(chan string, 1)
	go func() {
		_, b := site.send("POST", toCall("1", "gated", "{}"), "Mcp-Session-Id", id)
		body <- b
	}()
	g.wait(t, g.began, "begun")
	stop()
	g.wait(t, g.ended, "ended")
	if b := <-body; !strings.Contains(b, "INTERNAL") {
		t.Errorf("the call in flight: %s", b)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("Serve did not return")
	}
}

// TestSlowReaderLosesProgress: a client that does not read its stream loses progress, and the call continues.
func TestSlowReaderLosesProgress(t *testing.T) {
	finished := make(chan struct{})
	target := newFake("talks", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
		defer close(finished)
		for n := range 2000 {
			tool.CallerOf(ctx).Progress(float64(n), strings.Repeat("x", 1000))
		}
		return tool.Result{Structured: map[string]any{"ok": true}}, nil
	})
	s := newHTTPSite(t, New(Options{Tools: []tool.Tool{target}}), HTTPOptions{})
	id := s.open()
	response, err := http.DefaultClient.Do(s.request(t.Context(), "POST",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"talks","_meta":{"progressToken":1}}}`, "Mcp-Session-Id", id))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	awaitClosed(t, "the tool", finished)
	body, err := io.ReadAll(bufio.NewReader(response.Body))
	if list := eventsIn(t, string(body)); err != nil || len(list) == 0 || string(list[len(list)-1].ID) != "1" {
		t.Errorf("%v: %.200s", err, body)
	}
}
