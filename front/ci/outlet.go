package ci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// An outlet is how a stage that transfers files reaches the GitLab server, and nothing else: an HTTP proxy on a unix socket
// in the job's directory. A job has no network, and the front-end connects for it. TLS is between the job and the server.

// Bounds of the outlet of one stage.
const (
	maxConnections = 32
	connectTimeout = 30 * time.Second
	headTimeout    = 30 * time.Second // until the head of a request was received
	maxHead        = 64 << 10         // bytes of it
)

// An origin is the one server that an outlet connects to.
type origin struct {
	tls     bool
	address string // HOST:PORT, in lower case
}

// originOf returns the origin of an http or https URL.
func originOf(rawURL string) (*origin, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("must be a URL such as https://gitlab.example.com") // it may contain a token
	}
	return &origin{u.Scheme == "https", addressOf(u)}, nil
}

func addressOf(u *url.URL) string {
	usual := "80"
	if u.Scheme == "https" {
		usual = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), usual))
}

// listen makes the socket in the directory of the job, in which no job runs now, and serves it until the returned function
// is called.
func listen(dir, name string, to *origin) (end func(), err error) {
	// By a descriptor, because the path of a socket has at most 107 bytes (unix(7)).
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.Listen("unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), name))
	if err != nil {
		return nil, fmt.Errorf("the socket of the stage: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the caller does, by the directory that it holds
	s := &http.Server{
		Handler: newOutlet(to), ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead, IdleTimeout: headTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // the job's bytes are in these messages
	}
	go func() { _ = s.Serve(netutil.LimitListener(l, maxConnections)) }()
	return func() { _ = s.Close() }, nil
}

// newOutlet returns the proxy.
func newOutlet(to *origin) http.Handler {
	o := &outlet{origin: to, dial: (&net.Dialer{Timeout: connectTimeout}).DialContext}
	o.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		Transport:     &http.Transport{DialContext: o.dial, DisableCompression: true},
		FlushInterval: -1, // git waits for what the server sends
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	return o
}

type outlet struct {
	origin  *origin
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	forward *httputil.ReverseProxy
}

// ServeHTTP connects a request to the origin, by CONNECT for https.
func (o *outlet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect && o.origin.tls && strings.ToLower(r.Host) == o.origin.address:
		o.tunnel(w, r)
	case r.Method != http.MethodConnect && !o.origin.tls && r.URL.Scheme == "http" && addressOf(r.URL) == o.origin.address:
		r.Host = r.URL.Host
		o.forward.ServeHTTP(w, r)
	default:
		http.Error(w, "corral: this stage of the job reaches only "+o.origin.address, http.StatusForbidden)
	}
}

// tunnel copies bytes between the job and the origin until one of them ends.
func (o *outlet) tunnel(w http.ResponseWriter, r *http.Request) {
	server, err := o.dial(r.Context(), "tcp", o.origin.address)
	if err != nil {
		http.Error(w, "corral: the GitLab server does not answer", http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	copyBoth(struct {
		io.Reader
		io.Writer
	}{buffered, client}, server)
}

// copyBoth copies in both directions, and returns when one of them has ended.
func copyBoth(a, b io.ReadWriter) {
	done := make(chan struct{}, 2)
	for _, way := range [][2]io.ReadWriter{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
}
