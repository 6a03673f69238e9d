package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/mcp/tool"
)

// TestSessions: session ids are long, unique and bound to a principal; ended sessions are unknown.
func TestSessions(t *testing.T) {
	var log bytes.Buffer
	server := New(Options{Version: "1.2.3", Tools: testTools(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	s := newHTTPSite(t, server, HTTPOptions{MaxSessions: 3})
	one, two := s.open(), s.open()
	if one == two || len(one) != 64 {
		t.Errorf("%s, %s", one, two)
	}
	key := func(id string) string {
		_, body := s.send("POST", toCall("1", "echo", "{}"), "Mcp-Session-Id", id)
		var e struct{ Session string }
		if err := json.Unmarshal(decode(t, []byte(body)).Result.Structured, &e); err != nil {
			t.Fatal(err)
		}
		return e.Session
	}
	if first, again := key(one), key(one); first != again || first == key(two) || strings.Contains(first, one) {
		t.Errorf("keys %s, %s and %s", first, again, key(two))
	}
	if response, _ := s.send("DELETE", "", "Mcp-Session-Id", one); response.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", response.StatusCode)
	}
	for _, method := range []string{"POST", "GET", "DELETE"} {
		if response, _ := s.send(method, ping, "Mcp-Session-Id", one); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s after DELETE: %d", method, response.StatusCode)
		}
	}
	// The fourth session evicts the one idle longest, which the log says; another principal's sessions stay.
	client := key(two)
	other := s.open("Authorization", "Bearer b")
	for range 3 {
		s.open()
	}
	if response, _ := s.send("POST", ping, "Mcp-Session-Id", two); response.StatusCode != http.StatusNotFound {
		t.Errorf("the oldest of too many sessions: %d", response.StatusCode)
	}
	if response, _ := s.send("POST", ping, "Mcp-Session-Id", other, "Authorization", "Bearer b"); response.StatusCode != http.StatusOK {
		t.Errorf("another principal's session: %d", response.StatusCode)
	}
	if n := len(s.web.sessions.all); n != 4 {
		t.Errorf("%d sessions are kept", n)
	}
	if line := log.String(); !strings.Contains(line, "client="+client+" principal=token:a maximum=3") {
		t.Errorf("the log says %s", line)
	}
}

// TestSessionExpires: a session expires when idle, but not while a stream or call is open.
func TestSessionExpires(t *testing.T) {
	g := newGated()
	s := newHTTPSite(t, New(Options{Tools: []tool.Tool{g}}), HTTPOptions{})
	busy := s.open()
	done := make(chan string, 1)
	go func() {
		_, body := s.send("POST", toCall("1", "gated", "{}"), "Mcp-Session-Id", busy)
		done <- body
	}()
	g.wait(t, g.began, "begun")
	idle := s.open()
	s.web.sessions.mu.Lock()
	ended := s.web.sessions.all[idle].ctx.Done()
	s.web.sessions.idle = 50 * time.Millisecond // only now: before, either session could expire first
	s.web.sessions.mu.Unlock()
	s.send("POST", ping, "Mcp-Session-Id", idle) // its time begins again
	awaitClosed(t, "the end of the idle session", ended)
	if response, _ := s.send("POST", ping, "Mcp-Session-Id", idle); response.StatusCode != http.StatusNotFound {
		t.Errorf("idle: %d", response.StatusCode)
	}
	if response, _ := s.send("POST", ping, "Mcp-Session-Id", busy); response.StatusCode != http.StatusOK {
		t.Errorf("busy: %d", response.StatusCode)
	}
	close(g.letGo)
	if body := <-done; !strings.Contains(body, `"ok":true`) {
		t.Errorf("%s", body)
	}
}

// TestHTTPCancel: a call is cancelled by notifications/cancelled in its session, when its client disconnects,
// and when its session ends.
func TestHTTPCancel(t *testing.T) {
	for _, how := range []string{"notification", "leave", "delete", "leave 2026"} {
		t.Run(how, func(t *testing.T) {
			g := newGated()
			s := newHTTPSite(t, New(Options{Tools: []tool.Tool{g}}), HTTPOptions{})
			id, other := s.open(), s.open()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := s.request(ctx, "POST", toCall("1", "gated", "{}"), "Mcp-Session-Id", id)
			if how == "leave 2026" {
				r = s.request(ctx, "POST", modernCall("gated", ""), append(modernHeaders, "Mcp-Name", "gated")...)
			}
			status := make(chan int, 1)
			go func() {
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					status <- 0
					return
				}
				_ = response.Body.Close()
				status <- response.StatusCode
			}()
			g.wait(t, g.began, "begun")
			s.send("POST", cancelled("1"), "Mcp-Session-Id", other)
			if len(g.ended) != 0 {
				t.Fatal("another session cancelled the call")
			}
			switch how {
			case "notification":
				s.send("POST", cancelled("1"), "Mcp-Session-Id", id)
			case "delete":
				s.send("DELETE", "", "Mcp-Session-Id", id)
			default:
				leave()
			}
			g.wait(t, g.ended, "ended")
			want := http.StatusAccepted // no further message
			if strings.HasPrefix(how, "leave") {
				want = 0
			}
			if got := <-status; got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		})
	}
}

// TestHTTPProgress: progress is sent in the response to its own request only, in order; the session's stream has no messages
// and ends with the session.
func TestHTTPProgress(t *testing.T) {
	s := newHTTPSite(t, testServer(t), HTTPOptions{})
	id := s.open()
	stream, err := http.DefaultClient.Do(s.request(t.Context(), "GET", "", "Mcp-Session-Id", id))
	if err != nil || stream.StatusCode != http.StatusOK || stream.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", stream, err)
	}
	defer func() { _ = stream.Body.Close() }()
	if response, _ := s.send("GET", "", "Mcp-Session-Id", id); response.StatusCode != http.StatusConflict {
		t.Errorf("a second stream: %d", response.StatusCode)
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			token := fmt.Sprintf(`"token-%d"`, n)
			response, body := s.send("POST", `{"jsonrpc":"2.0","id":`+fmt.Sprint(n)+`,"method":"tools/call","params":{"name":"chatty","_meta":{"progressToken":`+token+`}}}`, "Mcp-Session-Id", id)
			if response.Header.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(body, "event: message\ndata: ") {
				t.Errorf("%s: %.200s", response.Header.Get("Content-Type"), body)
			}
			last := -1.0
			messages := eventsIn(t, body)
			for i, m := range messages {
				switch {
				case i == len(messages)-1:
					if string(m.ID) != fmt.Sprint(n) {
						t.Errorf("the last is %s", m.raw)
					}
				case string(m.Params.Token) != token || m.Params.Progress <= last:
					t.Errorf("%s in the answer to %d", m.raw, n)
				}
				last = m.Params.Progress
			}
		})
	}
	all.Wait()
	if _, body := s.send("POST", toCall("9", "chatty", "{}"), "Mcp-Session-Id", id); strings.Contains(body, "progress") {
		t.Errorf("progress without a token: %.200s", body)
	}
	response, body := s.send("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chatty","_meta":{"progressToken":1}}}`, "Mcp-Session-Id", id, "Accept", "application/json")
	if response.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"ok":true`) {
		t.Errorf("client without streams: %.200s", body)
	}
	s.send("DELETE", "", "Mcp-Session-Id", id)
	rest, err := io.ReadAll(stream.Body)
	if err != nil || bytes.Contains(rest, []byte("data:")) {
		t.Errorf("the session's stream: %q, %v", rest, err)
	}
}

func eventsIn(t *testing.T, body string) []incoming {
	t.Helper()
	var list []incoming
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, decode(t, []byte(data)))
		}
	}
	return list
}
