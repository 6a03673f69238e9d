package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A world is a relay to a server.
type world struct {
	t     *testing.T
	relay *Relay
	dials int
}

// newWorld returns a relay to the address of a server.
func newWorld(t *testing.T, protocol string, port uint16, server net.Addr) *world {
	w := &world{t: t}
	var mu sync.Mutex
	w.relay = New("example.org", port, protocol, func(context.Context) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		w.dials++
		if server == nil {
			return nil, unix.ECONNREFUSED
		}
		return net.Dial("tcp", server.String())
	})
	t.Cleanup(w.relay.Close)
	return w
}

// connect returns a connection to the relay, and the result of Serve.
func (w *world) connect() (*net.TCPConn, <-chan error) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { client.Close() })
	inside, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- w.relay.Serve(w.t.Context(), inside) }()
	return client.(*net.TCPConn), result
}

// mustDeny requires that Serve returned a Denied with a text.
func mustDeny(t *testing.T, result <-chan error, want string) {
	t.Helper()
	err := <-result
	if d := (*Denied)(nil); !errors.As(err, &d) || !strings.Contains(d.Why, want) {
		t.Errorf("got %v, want a denial with %q", err, want)
	}
}

// ended waits until Serve has returned, whatever it returned.
func ended(t *testing.T, result <-chan error) {
	t.Helper()
	if err := <-result; err != nil {
		t.Log(err)
	}
}

// listen returns a server that calls f with each connection.
func listen(t *testing.T, f func(net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); f(conn) }()
		}
	}()
	return l.Addr()
}

// hello returns the ClientHello for a name.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		near.Close()
	}()
	record := make([]byte, 5)
	if _, err := io.ReadFull(far, record); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(record[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	far.Close()
	return append(record, body...)
}

// extended returns a ClientHello with another extension.
func extended(hello []byte, kind uint16, data []byte) []byte {
	h := bytes.Clone(hello[5:])
	at := 4 + 2 + 32
	at += 1 + int(h[at])                               // session
	at += 2 + int(binary.BigEndian.Uint16(h[at:]))     // cipher suites
	at += 1 + int(h[at])                               // compression
	extensions := int(binary.BigEndian.Uint16(h[at:])) // their length
	binary.BigEndian.PutUint16(h[at:], uint16(extensions+4+len(data)))
	h = binary.BigEndian.AppendUint16(h, kind)
	h = binary.BigEndian.AppendUint16(h, uint16(len(data)))
	h = append(h, data...)
	n := len(h) - 4
	h[1], h[2], h[3] = byte(n>>16), byte(n>>8), byte(n)
	return records(h, 1<<14)
}

// records splits a handshake message into records of at most size bytes.
func records(message []byte, size int) (out []byte) {
	for len(message) > 0 {
		part := message[:min(len(message), size)]
		message = message[len(part):]
		out = binary.BigEndian.AppendUint16(append(out, 22, 3, 1), uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// outerECH is the extension of a client that hides its server's name: type outer, a cipher suite, and so on.
var outerECH = []byte{0, 0, 1, 0, 1, 7, 0, 2, 'k', 'k', 0, 2, 'p', 'p'}

// TestHello is the table of ClientHellos: a server gets all bytes of those for the host, and nothing of others.
func TestHello(t *testing.T) {
	right := hello(t, "example.org")
	tests := []struct {
		name string
		sent []byte
		want string // why it is denied; empty: it is not
	}{
		{"right", right, ""},
		{"upper case", hello(t, "EXAMPLE.org"), ""},
		{"records of one byte", records(right[5:], 1), ""},
		{"another extension", extended(right, 0x1234, nil), ""},
		{"more bytes", append(bytes.Clone(right), "early data"...), ""},
		{"another name", hello(t, "example.net"), `for "example.net"`},
		{"a subdomain", hello(t, "a.example.org"), `for "a.example.org"`},
		{"a prefix", hello(t, "example.or"), "for"},
		{"no name", hello(t, "127.0.0.1"), "names no server"},
		{"ECH", extended(right, encryptedHello, outerECH), "hides the name"},
		{"ECH for an inner hello", extended(right, encryptedHello, []byte{1}), "hides the name"},
		{"two extensions with names", extended(right, 0, []byte("\x00\x0e\x00\x00\x0bexample.net")), "not a TLS connection"},
		{"two names", bytes.Replace(hello(t, strings.Repeat("x", 25)), []byte("\x00\x1e\x00\x1c\x00\x00\x19"+strings.Repeat("x", 25)), []byte("\x00\x1e\x00\x1c\x00\x00\x0bexample.org\x00\x00\x0bexample.net"), 1), "not a TLS connection"},
		{"a final dot", bytes.Replace(hello(t, "example.orgx"), []byte("example.orgx"), []byte("example.org."), 1), "not a TLS connection"},
		{"a NUL", bytes.Replace(hello(t, "example.orgx"), []byte("example.orgx"), []byte("example.org\x00"), 1), `for "example.org`},
		{"too long", extended(right, 0x1234, make([]byte, maxHead)), "16 KiB"},
		{"empty records", bytes.Repeat([]byte{22, 3, 1, 0, 0}, maxHead), "not a TLS connection"},
		{"another message", append([]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, right...), "not a TLS connection"},
		{"an alert", append([]byte{21, 3, 1, 0, 2, 1, 0}, right...), "not a TLS connection"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), "not a TLS connection"},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.6\r\n"), "not a TLS connection"},
		{"SSL 2", []byte{0x80, 0x2e, 1, 0, 2, 0, 21, 0, 0, 0, 16}, "not a TLS connection"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan []byte, 1)
			w := newWorld(t, TLS, 443, listen(t, func(conn net.Conn) {
				all, _ := io.ReadAll(conn)
				got <- all
			}))
			client, result := w.connect()
			if _, err := client.Write(tt.sent); err != nil {
				t.Fatal(err)
			}
			_ = client.CloseWrite()
			answer, _ := io.ReadAll(client)
			if tt.want != "" {
				mustDeny(t, result, tt.want)
				if w.dials > 0 {
					t.Error("the server was connected to")
				}
				if len(answer) > 0 && (len(answer) != 7 || answer[0] != 21 || answer[5] != 2) {
					t.Errorf("answered %x, want a fatal alert", answer)
				}
				return
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
			if all := <-got; !bytes.Equal(all, tt.sent) {
				t.Errorf("the server got %d bytes, want %d", len(all), len(tt.sent))
			}
		})
	}
}

// TestTLS: a handshake with a server goes through, with data in both directions.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	w := newWorld(t, TLS, 443, server.Listener.Addr())
	raw, result := w.connect()
	client := &http.Client{Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		return tls.Client(raw, &tls.Config{ServerName: "example.org", InsecureSkipVerify: true}), nil
	}}}
	sent := strings.Repeat("data ", 100_000)
	reply, err := client.Post("https://example.org/", "text/plain", strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(reply.Body)
	if err != nil || string(body) != sent {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	reply.Body.Close()
	client.CloseIdleConnections()
	ended(t, result)
}

// TestSlow: a client that does not say in time which host it connects to is closed, and one that is idle afterwards, too.
func TestSlow(t *testing.T) {
	silent := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for protocol, start := range map[string]string{TLS: string(hello(t, "example.org")[:50]), HTTP: "GET / HTTP/1.1\r\nHost: exam"} {
		w := newWorld(t, protocol, 80, silent)
		w.relay.head = 50 * time.Millisecond
		client, result := w.connect()
		if _, err := io.WriteString(client, start); err != nil {
			t.Fatal(err)
		}
		mustDeny(t, result, "timeout")
		if w.dials > 0 {
			t.Errorf("%s: the server was connected to", protocol)
		}
	}
	for protocol, start := range map[string]string{
		TCP: "x", TLS: string(hello(t, "example.org")), HTTP: "POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 10\r\n\r\n",
	} {
		w := newWorld(t, protocol, 80, silent)
		w.relay.idle = 50 * time.Millisecond
		client, result := w.connect()
		if _, err := io.WriteString(client, start); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(client) // until it is closed
		ended(t, result)
	}
}

// TestHalfClosed: the end of one direction is passed on, and the other goes on.
func TestHalfClosed(t *testing.T) {
	w := newWorld(t, TCP, 5432, listen(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(all))
	}))
	client, result := w.connect()
	if _, err := io.WriteString(client, "question"); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(client); string(answer) != "QUESTION" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestIdle: connections without traffic keep no buffers.
func TestIdle(t *testing.T) {
	w := newWorld(t, TCP, 5432, listen(t, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	const connections = 200
	before := heap()
	var clients []*net.TCPConn
	for range connections {
		client, _ := w.connect()
		clients = append(clients, client)
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / connections; each > bufferSize/2 {
		t.Errorf("an idle connection keeps %d bytes", each)
	}
	for _, client := range clients {
		client.Close()
	}
}

// heap returns how many bytes are in use. What a sync.Pool has survives one collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestUnreachable: a client learns that the server cannot be reached.
func TestUnreachable(t *testing.T) {
	for protocol, tt := range map[string]struct{ sent, want string }{
		TLS:  {string(hello(t, "example.org")), "\x15\x03\x03\x00\x02\x02\x31"},
		HTTP: {"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "HTTP/1.1 502 Bad Gateway\r\n"},
		TCP:  {"", ""},
	} {
		w := newWorld(t, protocol, 80, nil)
		client, result := w.connect()
		if _, err := io.WriteString(client, tt.sent); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(client)
		if !strings.HasPrefix(string(answer), tt.want) {
			t.Errorf("%s: answered %q, want %q", protocol, answer, tt.want)
		}
		if err := <-result; !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v", protocol, err)
		}
	}
	if err := New("example.org", 1, "quic", nil).Serve(t.Context(), &net.TCPConn{}); err == nil {
		t.Error("an unknown protocol was served")
	}
}

// FuzzHello: no input makes readHello panic; what it accepts is passed on as it was read.
func FuzzHello(f *testing.F) {
	right := hello(f, "example.org")
	f.Add(right)
	f.Add(records(right[5:], 7))
	f.Add(extended(right, encryptedHello, outerECH))
	r := New("example.org", 443, TLS, nil)
	f.Fuzz(func(t *testing.T, input []byte) {
		near, far := net.Pipe()
		go func() { _, _ = far.Write(input); far.Close() }()
		sent, hello, err := readHello(near)
		near.Close()
		if err != nil {
			return
		}
		if !bytes.HasPrefix(input, sent) || len(sent) > maxHead {
			t.Errorf("passes on %x", sent)
		}
		if d := r.checkHello(hello); d == nil && !bytes.Contains(bytes.ToLower(stripRecords(sent)), []byte("example.org")) {
			t.Errorf("accepted a hello without the name: %x", sent)
		}
	})
}

// stripRecords returns what is in records.
func stripRecords(b []byte) (out []byte) {
	for len(b) >= 5 {
		n := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-5)
		out = append(out, b[5:5+n]...)
		b = b[5+n:]
	}
	return out
}
