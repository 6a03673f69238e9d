package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"corral/internal/test/sandboxtest"
	"corral/rpc"
)

// A site is a WebSocket server with two principals, whose tokens are a and b.
type site struct {
	*testing.T
	address string
	end     func() error
}

func newSite(t *testing.T, serve Handler) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() {
		ended <- ServeWeb(ctx, l, WebOptions{
			Log: silent(), Hosts: []string{"corral.example"},
			Authenticate: func(token string) (rpc.Caller, bool) {
				return rpc.Caller{Principal: "token:" + token}, token == "a" || token == "b"
			},
		}, serve)
	}()
	return &site{t, l.Addr().String(), func() error {
		cancel()
		return within(t, ended)
	}}
}

// dial opens a WebSocket with a token.
func (s *site) dial(token string) *websocket.Conn {
	s.Helper()
	ws, _, err := websocket.Dial(s.Context(), "ws://"+s.address+"/", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = ws.CloseNow() })
	ws.SetReadLimit(-1)
	return ws
}

// TestReady checks that /readyz reports whether requests would be served, and /healthz whether the server runs. However often
// anybody asks, the server finds out and writes to its log once per second.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing, calls := false, 0
		var log bytes.Buffer
		o := WebOptions{Log: slog.New(slog.NewTextHandler(&log, nil)), Ready: func() error {
			calls++
			if missing {
				return errors.New("no supervisor at /run/secret")
			}
			return nil
		}}
		h := &web{WebOptions: o, ready: o.readiness()}
		ask := func(path string) (int, string) {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		for n, is := range []bool{false, true, false} {
			missing = is
			time.Sleep(time.Second)
			want := map[bool]int{false: http.StatusOK, true: http.StatusServiceUnavailable}[is]
			for range 100 {
				if code, body := ask("/readyz"); code != want || strings.Contains(body, "secret") {
					t.Fatalf("supervisor missing %t: %d %q", is, code, body)
				}
			}
			if code, _ := ask("/healthz"); code != http.StatusOK {
				t.Errorf("supervisor missing %t: /healthz %d", is, code)
			}
			if calls != n+1 {
				t.Errorf("%d calls after %d seconds", calls, n+1)
			}
		}
		if lines := strings.Count(log.String(), "not ready"); lines != 1 {
			t.Errorf("%d lines in the log: %s", lines, log.String())
		}
	})
}

// TestWebRequests checks that a request that is not a WebSocket of a principal is refused and not served.
func TestWebRequests(t *testing.T) {
	var served atomic.Int32
	s := newSite(t, func(context.Context, rpc.Conn, rpc.Caller) error {
		served.Add(1)
		return nil
	})
	upgrade := []string{
		"Authorization", "Bearer a", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
		"Sec-Websocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg==",
	}
	with := func(headers ...string) []string { return append(bytesOf(upgrade), headers...) }
	for _, tt := range []struct {
		name, method, path string
		headers            []string // names and values; "-" removes a header
		status             int
	}{
		{"websocket", "GET", "/", upgrade, 101},
		{"at another path", "GET", "/rpc/v1", upgrade, 101},
		{"the configured name", "GET", "/", with("Host", "corral.example:99"), 101},
		{"ready", "GET", "/readyz", nil, 200},
		{"healthy", "GET", "/healthz", nil, 200},
		{"ready, in short", "HEAD", "/readyz", nil, 200},
		{"ready, posted", "POST", "/readyz", nil, 405},
		{"ready, for a page", "GET", "/readyz", []string{"Origin", "http://localhost"}, 403},
		{"ready, of another name", "GET", "/readyz", []string{"Host", "evil.example"}, 403},
		{"a page", "GET", "/", with("Origin", "https://evil.example"), 403},
		{"a local page", "GET", "/", with("Origin", "http://"+s.address), 403},
		{"a page of nobody", "GET", "/", with("Origin", "null"), 403},
		{"an empty origin", "GET", "/", with("Origin", ""), 403},
		{"a rebound name", "GET", "/", with("Host", "evil.example"), 403},
		{"a rebound name that begins well", "GET", "/", with("Host", "localhost.evil.example"), 403},
		{"no token", "GET", "/", with("Authorization", "-"), 401},
		{"no token, no websocket", "GET", "/", nil, 401},
		{"another token", "GET", "/", with("Authorization", "Bearer c"), 401},
		{"an empty token", "GET", "/", with("Authorization", "Bearer "), 401},
		{"another scheme", "GET", "/", with("Authorization", "Basic a"), 401},
		{"a token in the address", "GET", "/?token=a", with("Authorization", "-"), 401},
		{"no websocket", "GET", "/", []string{"Authorization", "Bearer a"}, 426},
		{"posted", "POST", "/", upgrade, 405},
		{"an old version", "GET", "/", with("Sec-Websocket-Version", "8"), 400},
		{"no key", "GET", "/", with("Sec-Websocket-Key", "-"), 400},
	} {
		before := served.Load()
		if got := s.status(tt.method, tt.path, tt.headers); got != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, got, tt.status)
		}
		if tt.status == 101 {
			sandboxtest.Eventually(t, 20*time.Second, tt.name+": it is served", func() bool { return served.Load() == before+1 })
		} else if served.Load() != before {
			t.Errorf("%s: served", tt.name)
		}
	}
	// A proxy in between may have evaluated the other one of two headers.
	if got := s.raw("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 401 ") {
		t.Errorf("two tokens: %.40q", got)
	}
	if got := s.raw("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("a long header: %.40q", got)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

func bytesOf(s []string) []string { return append([]string(nil), s...) }

func (s *site) status(method, path string, headers []string) int {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.address+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		switch {
		case headers[n] == "Host":
			r.Host = headers[n+1]
		case headers[n+1] == "-":
			r.Header.Del(headers[n])
		default:
			r.Header[headers[n]] = []string{headers[n+1]}
		}
	}
	transport := &http.Transport{DisableKeepAlives: headers == nil}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// raw sends bytes, and returns what is received until the connection ends.
func (s *site) raw(request string) string {
	s.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(sandboxtest.Slow(time.Minute)))
	_, _ = io.WriteString(c, request)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	return line
}

func TestWebSocket(t *testing.T) {
	s := newSite(t, echo)
	ws := s.dial("a")
	large := strings.Repeat("y", rpc.MaxMessage-1)
	for _, text := range []string{"hello", "", "ä\n", large} {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		kind, got, err := ws.Read(t.Context())
		if err != nil || kind != websocket.MessageText || string(got) != "token:a "+text {
			t.Fatalf("%.40q of %d: %v %v", got, len(got), kind, err)
		}
	}
	// A message in fragments.
	w, err := ws.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []string{"a", "b", ""} {
		_, _ = io.WriteString(w, piece)
	}
	_ = w.Close()
	if _, got, err := ws.Read(t.Context()); err != nil || string(got) != "token:a ab" {
		t.Errorf("%q, %v", got, err)
	}
	go func() { _, _, _ = ws.Read(t.Context()) }() // answers a ping
	if err := ws.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// TestWebSocketEnds checks that an invalid message ends the connection, with a status of RFC 6455, section 7.4.1, if one
// applies.
func TestWebSocketEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frame  []byte
		status websocket.StatusCode // 0 for an end without a close frame
		clean  bool
	}{
		{"binary", masked(0x82, "{}"), websocket.StatusUnsupportedData, false},
		{"too long", masked(0x81, strings.Repeat("x", rpc.MaxMessage+1)), websocket.StatusMessageTooBig, false},
		{"not masked", []byte("\x81\x02{}"), websocket.StatusGoingAway, false},
		{"unknown kind", masked(0x83, "{}"), websocket.StatusProtocolError, false},
		{"reserved bit", masked(0xc1, "{}"), websocket.StatusProtocolError, false},
		{"a piece of nothing", masked(0x80, "{}"), websocket.StatusProtocolError, false},
		{"ping in pieces", masked(0x09, "{}"), websocket.StatusProtocolError, false},
		{"huge ping", masked(0x89, strings.Repeat("x", 126)), websocket.StatusProtocolError, false},
		{"closed", masked(0x88, "\x03\xe8"), websocket.StatusNormalClosure, true},
		{"closed without a status", masked(0x88, ""), websocket.StatusNoStatusRcvd, true},
		{"closed without a word", nil, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result := make(chan error, 1)
			s := newSite(t, func(ctx context.Context, conn rpc.Conn, who rpc.Caller) error {
				result <- echo(ctx, conn, who)
				return nil
			})
			c := s.upgraded()
			if tt.frame == nil {
				_ = c.Close()
			} else {
				_, _ = c.Write(tt.frame)
				if got := closeStatus(c); got != tt.status {
					t.Errorf("status %d, want %d", got, tt.status)
				}
			}
			if err := within(t, result); errors.Is(err, io.EOF) != tt.clean {
				t.Errorf("%v", err)
			}
		})
	}
}

// upgraded returns a connection after the handshake.
func (s *site) upgraded() net.Conn {
	s.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(sandboxtest.Slow(time.Minute)))
	_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n", s.address)
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, b...) {
		if _, err := c.Read(b); err != nil {
			s.Fatalf("%q: %v", head, err)
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		s.Fatalf("%q", head)
	}
	return c
}

// masked returns a frame as a client sends it (RFC 6455, section 5.2), with an all-zero mask.
func masked(first byte, payload string) []byte {
	frame := []byte{first}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	return append(append(frame, 0, 0, 0, 0), payload...)
}

// closeStatus reads up to the close frame and returns its status, or 0 if the connection ends without one.
func closeStatus(c net.Conn) websocket.StatusCode {
	r := bufio.NewReader(c)
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(r, head); err != nil {
			return 0
		}
		payload := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(r, payload); err != nil {
			return 0
		}
		if head[0]&0xf == 8 {
			if len(payload) < 2 {
				return websocket.StatusNoStatusRcvd
			}
			return websocket.StatusCode(binary.BigEndian.Uint16(payload))
		}
	}
}

// TestWebStalled checks that a client that does not read delays no other, and that its connection ends with the server.
func TestWebStalled(t *testing.T) {
	sandboxtest.Leaks(t)
	stalled := make(chan struct{})
	var once sync.Once
	s := newSite(t, func(ctx context.Context, conn rpc.Conn, who rpc.Caller) error {
		if who.Principal == "token:b" {
			return echo(ctx, conn, who)
		}
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		for f := conn.(*frameConn); ; {
			written, watched := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(watched)
				for tick := time.NewTicker(stallTimeout / 10); ; {
					select {
					case <-written:
						return
					case <-tick.C:
						if f.stalled() { // a write is blocked
							once.Do(func() { close(stalled) })
						}
					}
				}
			}()
			err := conn.Write(make([]byte, 64<<10))
			close(written)
			<-watched
			if err != nil {
				return err
			}
		}
	})
	s.dial("a")
	within(t, stalled)
	other := s.dial("b")
	if err := other.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
		t.Error(err)
	}
	if _, got, err := other.Read(t.Context()); err != nil || string(got) != "token:b x" {
		t.Errorf("%q, %v", got, err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// TestWebShare checks the maximum number of connections of a principal, and that others are still served.
func TestWebShare(t *testing.T) {
	s := newSite(t, echo)
	for range maxPerClient {
		s.dial("a")
	}
	if got := s.status("GET", "/", []string{"Authorization", "Bearer a"}); got != http.StatusServiceUnavailable {
		t.Errorf("status %d", got)
	}
	s.dial("b")
}

// TestWebNobody checks that a server without tokens refuses to start.
func TestWebNobody(t *testing.T) {
	if err := ServeWeb(t.Context(), nil, WebOptions{Log: silent()}, echo); err == nil || !strings.Contains(err.Error(), "corral config token") {
		t.Errorf("%v", err)
	}
}

// TestPieces checks that a message that the server gives in pieces arrives as one, over each transport, and does not change
// how the next one arrives.
func TestPieces(t *testing.T) {
	piece := []byte(strings.Repeat("é", 10_000))
	pieces := func(yield func([]byte) bool) {
		own := bytes.Clone(piece) // is reused, as callers may
		for range 50 {
			copy(own, piece)
			if !yield(own) {
				return
			}
			clear(own)
		}
	}
	want := strings.Repeat(string(piece), 50)
	serve := func(_ context.Context, conn rpc.Conn, _ rpc.Caller) error {
		return errors.Join(conn.WritePieces(pieces), conn.Write([]byte("next")), conn.WritePieces(func(func([]byte) bool) {}))
	}
	lines := func(name string, from io.Reader) {
		r := bufio.NewReader(from)
		for _, want := range []string{want, "next", ""} {
			if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
	s := newSite(t, serve)
	ws := s.dial("a")
	for _, want := range []string{want, "next", ""} {
		kind, got, err := ws.Read(t.Context())
		if err != nil || kind != websocket.MessageText || string(got) != want {
			t.Errorf("websocket: %d bytes, %v", len(got), err)
		}
	}
	path, _ := onUnix(t, serve)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lines("unix", c)
	p := newPiped(t)
	go func() { _ = serve(t.Context(), p.Conn, rpc.Caller{}) }()
	lines("stdio", p.out)
}
