package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A site is an HTTP server that records the requests that it gets.
type site struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func newSite(t *testing.T) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.RequestURI, body))
		for name := range r.Header {
			if strings.HasPrefix(name, "Upgrade") || strings.HasPrefix(name, "Http2") || strings.HasPrefix(name, "X-Forwarded") {
				s.got = append(s.got, name)
			}
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.got, "; ")
}

// TestRequests is the table of requests: those for the host reach the server as they are, no other reaches it.
func TestRequests(t *testing.T) {
	const host = "Host: example.org\r\n"
	tests := []struct {
		name, sent string
		want       string // at the server; empty: it is denied
		why        string
	}{
		{"plain", "GET /a?b=c;d&e HTTP/1.1\r\n" + host + "\r\n", `GET example.org /a?b=c;d&e ""`, ""},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n" + host + "\r\n", `GET example.org / ""`, ""},
		{"upper case", "GET / HTTP/1.1\r\nHOST: Example.ORG\r\n\r\n", `GET Example.ORG / ""`, ""},
		{"with the port", "GET / HTTP/1.1\r\nHost: example.org:80\r\n\r\n", `GET example.org:80 / ""`, ""},
		{"absolute", "GET http://example.org/x HTTP/1.1\r\n" + host + "\r\n", `GET example.org /x ""`, ""},
		{"escaped path", "GET /a%2Fb%20c HTTP/1.1\r\n" + host + "\r\n", `GET example.org /a%2Fb%20c ""`, ""},
		{"a body", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\n\r\ndata", `POST example.org / "data"`, ""},
		{"chunks", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n", `POST example.org / "data"`, ""},
		{"a pipelined request", "GET /1 HTTP/1.1\r\n" + host + "\r\nGET /2 HTTP/1.1\r\nHost: other.example.org\r\n\r\n", `GET example.org /1 ""`, ""},
		{"an upgrade", "GET / HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", `GET example.org / ""`, ""},
		{"forwarded", "GET / HTTP/1.1\r\n" + host + "X-Forwarded-Host: other.example.org\r\n\r\n", `GET example.org / ""`, ""},

		{"another host", "GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n", "", `the host "other.example.org"`},
		{"another port", "GET / HTTP/1.1\r\nHost: example.org:81\r\n\r\n", "", "the host"},
		{"a final dot", "GET / HTTP/1.1\r\nHost: example.org.\r\n\r\n", "", "the host"},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", "", "0 Host lines"},
		{"no Host in 1.0", "GET / HTTP/1.0\r\n\r\n", "", "0 Host lines"},
		{"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "", "the host"},
		{"two Hosts", "GET / HTTP/1.1\r\n" + host + "Host: other.example.org\r\n\r\n", "", "2 Host lines"},
		{"the same Host twice", "GET / HTTP/1.1\r\n" + host + "host: example.org\r\n\r\n", "", "2 Host lines"},
		{"a Host with a space", "GET / HTTP/1.1\r\nHost : example.org\r\n\r\n", "", "a name, a colon"},
		{"a user", "GET / HTTP/1.1\r\nHost: x@example.org\r\n\r\n", "", ""},
		{"absolute for another host", "GET http://other.example.org/ HTTP/1.1\r\n" + host + "\r\n", "", `"other.example.org"`},
		{"absolute with two hosts", "GET http://example.org/ HTTP/1.1\r\nHost: other.example.org\r\n\r\n", `GET example.org / ""`, ""},
		{"absolute with a user", "GET http://a@example.org/ HTTP/1.1\r\n" + host + "\r\n", "", "the request is for"},
		{"absolute with https", "GET https://example.org/ HTTP/1.1\r\n" + host + "\r\n", "", "the request is for"},
		{"CONNECT", "CONNECT example.org:80 HTTP/1.1\r\n" + host + "\r\n", "", "CONNECT"},
		{"obs-fold", "GET / HTTP/1.1\r\nX: a\r\n " + host + "\r\n", "", "obs-fold"},
		{"obs-fold by a tab", "GET / HTTP/1.1\r\n" + host + "\tx: y\r\n\r\n", "", "obs-fold"},
		{"obs-fold at the start", "GET / HTTP/1.1\r\n " + host + "\r\n", "", "obs-fold"},
		{"CL.TE", "POST / HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", "", "both"},
		{"TE.CL", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nG\r\n0\r\n\r\n", "", "both"},
		{"two lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "", "several times"},
		{"two encodings", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "", "several times"},
		{"an unknown encoding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "", ""},
		{"an encoding with a space", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "", "a name, a colon"},
		{"a list of lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1, 2\r\n\r\nab", "", ""},
		{"a signed length", "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\na", "", ""},
		{"a bare LF", "GET / HTTP/1.1\r\nX: y\n" + host + "\r\n", "", "control character"},
		{"a bare CR", "GET / HTTP/1.1\r\nX: y\r" + host + "\r\n", "", "control character"},
		{"a NUL", "GET / HTTP/1.1\r\nX: \x00\r\n" + host + "\r\n", "", "control character"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", "HTTP/1.1"},
		{"HTTP/0.9", "GET /\r\n\r\n", "", "HTTP/1.1"},
		{"TLS", "\x16\x03\x01\x00\x01\r\n\r\n", "", "HTTP/1.1"},
		{"a long head", "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", maxHead) + "\r\n\r\n", "", "16 KiB"},
		{"the end", "GET / HTTP/1.1\r\n" + host, "", "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			w := newWorld(t, HTTP, 80, s.Listener.Addr())
			client, result := w.connect()
			if _, err := io.WriteString(client, tt.sent); err != nil {
				t.Fatal(err)
			}
			if tt.why == "EOF" {
				_ = client.CloseWrite()
			}
			answer, _ := io.ReadAll(client)
			if got := s.requests(); got != tt.want {
				t.Errorf("the server got %s, want %s", got, tt.want)
			}
			if tt.want == "" && tt.why != "" {
				mustDeny(t, result, tt.why)
				return
			}
			ended(t, result)
			if ok := strings.HasPrefix(string(answer), "HTTP/1.") && strings.HasSuffix(string(answer), "hello"); ok != (tt.want != "") {
				t.Errorf("answered %q", answer)
			}
		})
	}
}

// TestPort: on another port than 80, a request has the port in its Host, as clients send it.
func TestPort(t *testing.T) {
	s := newSite(t)
	w := newWorld(t, HTTP, 8080, s.Listener.Addr())
	for host, want := range map[string]int{"example.org:8080": 200, "example.org": 403, "example.org:80": 403} {
		client, result := w.connect()
		_, _ = fmt.Fprintf(client, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		reply, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, reply.Status, want)
		}
		ended(t, result)
	}
}

// TestKept: requests of several connections use one connection to the host.
func TestKept(t *testing.T) {
	s := newSite(t)
	w := newWorld(t, HTTP, 80, s.Listener.Addr())
	for range 3 {
		client, result := w.connect()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
		if answer, _ := io.ReadAll(client); !strings.Contains(string(answer), "\r\nConnection: close\r\n") {
			t.Errorf("answered %q, want the end of the connection announced", answer)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if w.dials != 1 {
		t.Errorf("%d connections to the host, want 1", w.dials)
	}
}

// TestHostileServer: a server cannot turn the connection into one whose requests nobody checks, and no answer of it is
// unbounded where it is kept in memory.
func TestHostileServer(t *testing.T) {
	for name, answer := range map[string]string{
		"switches":           "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"switches by name":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"not HTTP":           "SSH-2.0\r\n\r\n",
		"a head without end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20),
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"nothing":            "",
	} {
		w := newWorld(t, HTTP, 80, listen(t, func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, answer)
		}))
		client, result := w.connect()
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		if got, _ := io.ReadAll(client); !strings.HasPrefix(string(got), "HTTP/1.1 502 ") {
			t.Errorf("%s: answered %.100q", name, got)
		}
		if err := <-result; err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
