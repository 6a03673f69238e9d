package relay

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// echoes switches to the protocol that a request asks for, or without being asked to a WebSocket, and sends back what it receives.
func echoes(rw http.ResponseWriter, in *http.Request) {
	conn, both, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	protocol := in.Header.Get("Upgrade")
	if protocol == "" {
		protocol = "websocket"
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
	_, _ = io.Copy(conn, both)
}

// upgrade sends a request of HTTP/1.1, and returns the connection and the response.
func (w *secureWorld) upgrade(head string) (*tls.Conn, *http.Response) {
	w.t.Helper()
	conn := tls.Client(w.connect(), &tls.Config{ServerName: "example.org", RootCAs: w.jobs, NextProtos: []string{"http/1.1"}})
	if _, err := io.WriteString(conn, head); err != nil {
		w.t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn, reply
}

const asksWebSocket = " HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"

// TestWebSocket: data passes both ways, until the rules do not allow the request any more.
func TestWebSocket(t *testing.T) {
	w := newSecure(t, "example.org", nil, echoes)
	conn, reply := w.upgrade("GET /open/socket" + asksWebSocket + "\r\n")
	if reply.StatusCode != http.StatusSwitchingProtocols || reply.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%s %v", reply.Status, reply.Header)
	}
	got := make([]byte, 5)
	for range 3 {
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	_, _ = io.WriteString(conn, "again")
	if rest, _ := io.ReadAll(conn); len(rest) > 0 {
		t.Errorf("%q after the rules have changed", rest)
	}
}

// TestNoWebSocket: what is not exactly a WebSocket is passed on as a request, and one that the rules do not allow is denied.
func TestNoWebSocket(t *testing.T) {
	secret := &Secret{Header: "Authorization", Format: "Bearer {}", Value: value}
	for name, tt := range map[string]struct {
		head, why string
		status    int
	}{
		"only GET":            {"GET /open/read/socket" + asksWebSocket, "a WebSocket, which sends data: no rule allows POST /open/read/socket", 403},
		"no path":             {"GET /other" + asksWebSocket, "no rule allows GET /other", 403},
		"a secret":            {"GET /open/socket" + asksWebSocket + "Authorization: Bearer " + placeholder + "\r\n", "a WebSocket at a host with a secret", 403},
		"another's secret":    {"GET /open/socket" + asksWebSocket, "a WebSocket at a host with a secret", 403},
		"h2c":                 {"GET /open/socket HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n", "", 502},
		"two protocols":       {"GET /open/socket" + asksWebSocket + "Upgrade: h2c\r\n", "", 502},
		"a list":              {"GET /open/socket HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n", "", 502},
		"POST":                {"POST /open/socket" + asksWebSocket + "Content-Length: 0\r\n", "", 502},
		"a body":              {"GET /open/socket" + asksWebSocket + "Content-Length: 1\r\n", "", 502},
		"without being asked": {"GET /open/socket HTTP/1.1\r\nHost: example.org\r\n", "", 502},
		"no Connection":       {"GET /open/socket HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\n", "", 502},
	} {
		of := secret
		if tt.status == http.StatusBadGateway {
			of = nil // the denial would be that of a WebSocket
		}
		w := newSecure(t, "example.org", of, echoes)
		w.relay.transport.ForceAttemptHTTP2 = false // otherwise the server cannot switch
		body := ""
		if name == "a body" {
			body = "x"
		}
		conn, reply := w.upgrade(tt.head + "\r\n" + body)
		text, _ := io.ReadAll(reply.Body)
		_, denied := w.take()
		if reply.StatusCode != tt.status || tt.why != "" && (len(denied) != 1 || !strings.Contains(denied[0], tt.why) || !strings.Contains(string(text), tt.why)) {
			t.Errorf("%s: %s %q, denied %q", name, reply.Status, text, denied)
		}
		conn.Close()
	}
}
