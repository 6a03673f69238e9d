package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/internal/text"
)

// serveHTTP serves one request. Its head is checked before package net/http reads it, which accepts some forms that other
// programs read in another way. The job makes a new connection for the next request, so no head comes from elsewhere than the
// beginning of a connection; that costs it microseconds, on its loopback device. Connections to the host are kept.
func (r *Relay) serveHTTP(ctx context.Context, client net.Conn) error {
	one, err := r.newRequest(client)
	if err != nil {
		return err
	}
	defer func() { _ = one.conn.Close() }()
	server := r.newServer(ctx, one)
	server.SetKeepAlivesEnabled(false)
	_ = server.Serve(&single{conn: one.conn, under: one.conn})
	return one.err
}

// newRequest reads the head of a request.
func (r *Relay) newRequest(client net.Conn) (*request, error) {
	_ = client.SetReadDeadline(time.Now().Add(r.head))
	head, err := readHead(client)
	if err != nil {
		return nil, denied("not an HTTP request: %s", text.Cut(err.Error(), maxShown))
	}
	_ = client.SetReadDeadline(time.Time{})
	if d := checkHead(head); d != nil {
		refuse(client, d)
		return nil, d
	}
	return &request{relay: r, conn: newPrefixed(client, head, r.idle)}, nil
}

func (r *Relay) newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:        handler,
		MaxHeaderBytes: maxHead,
		ErrorLog:       nowhere(),
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
}

func nowhere() *log.Logger { return log.New(io.Discard, "", 0) }

// readHead reads until the end of a head. It may have read more.
func readHead(client net.Conn) ([]byte, error) {
	buffer := make([]byte, 0, 2048)
	for {
		if len(buffer) == maxHead {
			return nil, errors.New("the head has more than 16 KiB")
		}
		if len(buffer) == cap(buffer) {
			buffer = append(make([]byte, 0, min(2*cap(buffer), maxHead)), buffer...)
		}
		n, err := client.Read(buffer[len(buffer):cap(buffer)])
		from := max(0, len(buffer)-3)
		buffer = buffer[:len(buffer)+n]
		if bytes.Contains(buffer[from:], []byte("\r\n\r\n")) {
			return buffer, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// checkHead returns what is ambiguous in a head: forms in which two programs can read two requests.
func checkHead(head []byte) *Denied {
	head, _, _ = bytes.Cut(head, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	if !strings.HasSuffix(lines[0], " HTTP/1.1") && !strings.HasSuffix(lines[0], " HTTP/1.0") {
		return denied("not a request of HTTP/1.1 or 1.0")
	}
	if strings.HasPrefix(lines[0], "CONNECT ") {
		return denied("the method CONNECT, which asks for another connection")
	}
	count := map[string]int{}
	for n, line := range lines {
		if strings.ContainsAny(line, "\r\n\x00") {
			return denied("a line of the head has a control character")
		}
		if n == 0 {
			continue
		}
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			return denied("a line of the head continues the one before (obs-fold)")
		}
		name, _, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != name {
			return denied("a line of the head is not a name, a colon and a value")
		}
		count[strings.ToLower(name)]++
	}
	switch {
	case count["host"] != 1:
		return denied("the request has %d Host lines, must have one", count["host"])
	case count["content-length"] > 1, count["transfer-encoding"] > 1:
		return denied("the request gives its length several times")
	case count["content-length"]+count["transfer-encoding"] > 1:
		return denied("the request has both Transfer-Encoding and Content-Length")
	}
	return nil
}

// refuse answers a request that is not passed on.
func refuse(client net.Conn, d *Denied) {
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	body := forbidden(d)
	_, _ = fmt.Fprintf(client, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		len(body), body)
}

func forbidden(d *Denied) string { return "corral: denied: " + d.Why + "\n" }

// A request is the one request of a connection.
type request struct {
	relay *Relay
	conn  *prefixed
	err   error
}

// ServeHTTP implements http.Handler.
func (q *request) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	if d := q.relay.checkRequest(in); d != nil {
		q.err = d
		d.answer(w, http.StatusForbidden)
		return
	}
	in.Header.Del("Upgrade") // it would have requests that nobody checks (h2c); a server may ignore this line, so may we
	failed := func(err error) error { q.err = err; return err }
	if i := q.relay.inspect; i != nil {
		if _, why := i.Allow(in.Method, in.URL.Path); why != "" {
			q.err = &Denied{why}
			(&Denied{why}).answer(w, http.StatusForbidden)
			return
		}
		if q.relay.pull(w, in, "http", sent{}, failed) {
			return
		}
	}
	q.relay.forward(w, in, "http", nil, failed)
}

// answer answers a request that is not passed on.
func (d *Denied) answer(w http.ResponseWriter, status int) {
	http.Error(w, strings.TrimSuffix(forbidden(d), "\n"), status)
}

var errSwitched = errors.New("the server switches protocols without being asked")

// forward passes a request on, and the response back. check, if set, may change a response, or fail. failed returns what the job is
// told of an error. A request that has Upgrade may become a connection of that protocol.
func (r *Relay) forward(
	w http.ResponseWriter, in *http.Request, scheme string, check func(*http.Response) error, failed func(error) error,
) {
	in.Header.Del("Http2-Settings")
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = scheme, r.address(), in.Host
			p.Out.URL.RawQuery = in.URL.RawQuery
		},
		Transport: r.transport, FlushInterval: -1, ErrorLog: nowhere(),
		ModifyResponse: func(reply *http.Response) error {
			if reply.StatusCode == http.StatusSwitchingProtocols && in.Header.Get("Upgrade") == "" {
				return errSwitched
			}
			if check != nil {
				return check(reply)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "corral: "+text.Line(failed(err).Error(), 1000), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, in)
}

// checkRequest returns why a request is not for the host.
func (r *Relay) checkRequest(in *http.Request) *Denied {
	if in.URL.Host != "" && (!r.isHost(in.URL.Host) || in.URL.Scheme != r.scheme() || in.URL.User != nil) {
		return denied("the request is for %q", text.Cut(in.URL.Host, maxShown))
	}
	if !r.isHost(in.Host) {
		return denied("the request is for the host %q", text.Cut(in.Host, maxShown))
	}
	return nil
}

// isHost reports whether what a request calls its host is the name, with the port unless that is the protocol's own.
func (r *Relay) isHost(host string) bool {
	name, port, hasPort := strings.Cut(host, ":")
	if hasPort && port != strconv.Itoa(int(r.port)) || !hasPort && r.port != r.defaultPort() {
		return false
	}
	return sameName(name, r.name)
}

func (r *Relay) scheme() string {
	if r.protocol == HTTPS {
		return "https"
	}
	return "http"
}

func (r *Relay) defaultPort() uint16 {
	if r.protocol == HTTPS {
		return 443
	}
	return 80
}

func (r *Relay) address() string { return net.JoinHostPort(r.name, strconv.Itoa(int(r.port))) }

func (r *Relay) newTransport() *http.Transport {
	return &http.Transport{
		// Whatever the request says, the connection is to the host.
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx) },
		DisableCompression:     true,
		MaxIdleConns:           4,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         bufferSize,
	}
}

// A prefixed connection starts with bytes that were read before, and ends after the idle time without traffic.
type prefixed struct {
	net.Conn
	head    []byte
	idle    *time.Timer
	timeout time.Duration
	once    sync.Once
	closed  chan struct{}
}

func newPrefixed(conn net.Conn, head []byte, timeout time.Duration) *prefixed {
	p := &prefixed{Conn: conn, head: head, timeout: timeout, closed: make(chan struct{})}
	p.idle = time.AfterFunc(timeout, func() { conn.Close() })
	return p
}

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	n, err := p.Conn.Read(b)
	p.alive(n)
	return n, err
}

// Write implements net.Conn.
func (p *prefixed) Write(b []byte) (int, error) {
	p.alive(1)
	n, err := p.Conn.Write(b)
	p.alive(n)
	return n, err
}

func (p *prefixed) alive(n int) {
	if n > 0 {
		p.idle.Reset(p.timeout)
	}
}

// Close implements net.Conn.
func (p *prefixed) Close() error {
	p.once.Do(func() { p.idle.Stop(); close(p.closed) })
	return p.Conn.Close()
}

// A single is a listener with one connection, by way of another one.
type single struct {
	conn     net.Conn
	under    *prefixed
	accepted bool
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	if !s.accepted {
		s.accepted = true
		return s.conn, nil
	}
	<-s.under.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (s *single) Close() error { return s.under.Close() }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return s.under.LocalAddr() }
