package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"corral/internal/text"
)

// maxStreams is how many requests of HTTP/2 are served at once on a connection, and how many connections to the host there are.
const maxStreams = 32

// What HTTP/2 has sent and nobody has read, in bytes. The defaults of net/http are 1 MiB for each of a job's connections, and 4 MiB for
// each request to a host: a job that reads nothing could fill the memory of all jobs of its user.
const (
	maxUnreadUp     = 128 << 10 // of a job's connection
	maxUnreadDown   = 2 << 20   // of a connection to a host
	maxUnreadAnswer = 1 << 20   // of a request in it
)

// An Inspection says how requests in TLS are checked. All functions may be called concurrently.
type Inspection struct {
	// Certificate returns the certificate with which the job's TLS connection ends here.
	Certificate func(name string) (*tls.Certificate, error)
	// Roots are the authorities that the host's certificate is verified with. They must be set: the program reads no file later.
	Roots *x509.CertPool
	// Allow returns why a request is not allowed, "" if it is, and the secret that takes the placeholder's place in it, nil if none
	// does. It is called with each reading of the path, see readings.
	Allow func(method, path string) (secret *Secret, why string)
	// Headers returns the headers that a request may have beside clientHeaders, or that it may have all, because the rule that allows it
	// names neither methods nor paths. It is called with each reading of the path; nil: all requests may have all.
	Headers func(method, path string) (more []string, all bool)
	// Dropped is called with the names of headers that are not passed on, if there are some; nil: nobody is told.
	Dropped func(names []string)
	// Deny is called for each request that is denied.
	Deny func(*Denied)
	// Secrets returns those that requests to the host are given at present: no response tells one. nil: those of Allow alone.
	Secrets func() []*Secret
	// Placeholder stands for secrets, in all that the job knows; "" if it knows none.
	Placeholder string
	// Enter waits until an allowed request may be served, and returns a function to be called when it was, or why it may not be served now.
	// nil: all are served at once.
	Enter func(context.Context) (leave func(), err error)
	// Pull returns what answers an allowed request in place of the host, nil if nothing does. It is given each reading of the path, and
	// the secret that is in the request; nil: none. Pull itself may be nil.
	Pull func(method string, paths []string, used *Secret) Puller
}

// NewInspecting returns a Relay for HTTP in TLS, 1.1 and 2, that checks each request.
func NewInspecting(name string, port uint16, dial func(context.Context) (net.Conn, error), inspection Inspection) *Relay {
	r := New(name, port, HTTPS, dial)
	r.inspect = &inspection
	r.transport = r.newTransport()
	r.transport.TLSClientConfig = &tls.Config{ServerName: name, RootCAs: inspection.Roots, MinVersion: tls.VersionTLS12}
	r.transport.TLSHandshakeTimeout = r.head
	r.transport.ForceAttemptHTTP2 = true
	r.transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: maxUnreadDown, MaxReceiveBufferPerStream: maxUnreadAnswer}
	r.transport.MaxConnsPerHost = maxStreams
	if inspection.Roots == nil {
		r.transport.TLSClientConfig.RootCAs = x509.NewCertPool() // nil would be those of files
	}
	return r
}

// serveHTTPS ends the job's TLS, and serves its requests: one of HTTP/1.1, whose head is checked as without TLS, or those of
// HTTP/2, whose framing leaves no room for two readings.
func (r *Relay) serveHTTPS(ctx context.Context, client net.Conn) error {
	_ = client.SetDeadline(time.Now().Add(r.head))
	sent, hello, err := readHello(client)
	if err != nil {
		alert(client, alertDecodeError)
		return denied("not a TLS connection: %s", text.Cut(err.Error(), maxShown))
	}
	if d := r.checkHello(hello); d != nil {
		alert(client, alertUnrecognizedName)
		return d
	}
	certificate, err := r.inspect.Certificate(r.name)
	if err != nil {
		alert(client, alertInternalError)
		return err
	}
	under := newPrefixed(client, sent, r.idle)
	defer func() { _ = under.Close() }()
	secure := tls.Server(under, &tls.Config{
		Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
		SessionTicketsDisabled: true, // a session of another name could be resumed
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return &handshakeError{err}
	}
	defer func() { _ = secure.Close() }()
	_ = client.SetDeadline(time.Time{})
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return r.serveHTTP2(ctx, secure, under)
	}
	one, err := r.newRequest(secure)
	if d := (*Denied)(nil); errors.As(err, &d) {
		r.inspect.Deny(d)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = one.conn.Close() }()
	i := &inspected{relay: r}
	server := r.newServer(ctx, i)
	server.SetKeepAlivesEnabled(false)
	_ = server.Serve(&single{conn: one.conn, under: one.conn})
	return i.wait()
}

// A handshakeError is mostly that of a client that does not trust the authority.
type handshakeError struct{ err error }

// Error implements error.
func (e *handshakeError) Error() string {
	return "the client ended the TLS connection, which corral ends for this host; does it trust the certificates of its environment? " +
		e.err.Error()
}

// Unwrap returns the error of the connection.
func (e *handshakeError) Unwrap() error { return e.err }

// serveHTTP2 serves the requests of a connection. Package net/http must see the TLS connection itself.
func (r *Relay) serveHTTP2(ctx context.Context, secure *tls.Conn, under *prefixed) error {
	i := &inspected{relay: r}
	server := r.newServer(ctx, i)
	server.IdleTimeout = r.idle
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 1 << 14,
		MaxReceiveBufferPerConnection: maxUnreadUp, MaxReceiveBufferPerStream: maxUnreadUp,
	}
	server.TLSConfig = &tls.Config{NextProtos: []string{"h2"}}
	_ = server.Serve(&single{conn: secure, under: under})
	return i.wait()
}

// An inspected serves the requests of a connection.
type inspected struct {
	relay *Relay
	work  sync.WaitGroup

	mu  sync.Mutex
	err error // guarded by mu: the last request's to the host
}

// wait waits for the requests, and returns why the last one that failed did.
func (i *inspected) wait() error {
	i.work.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// ServeHTTP implements http.Handler.
func (i *inspected) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	i.work.Add(1)
	defer i.work.Done()
	r := i.relay
	if d := r.checkRequest(in); d != nil {
		r.inspect.Deny(d)
		d.answer(w, http.StatusMisdirectedRequest)
		return
	}
	in, with, end, d := r.begin(in)
	defer end()
	g := with.guard
	var open func() bool
	if d == nil {
		open, d = r.inspect.upgrades(in, g)
	}
	if d != nil {
		r.inspect.Deny(d)
		d.answer(w, http.StatusForbidden)
		return
	}
	failed := func(err error) error {
		err = g.hide(err)
		if d := (*Denied)(nil); errors.As(err, &d) {
			r.inspect.Deny(d)
			return err
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.err = err
		return err
	}
	if r.inspect.Enter != nil {
		leave, err := r.inspect.Enter(in.Context())
		if err != nil {
			tooMany(w, failed(err))
			return
		}
		defer leave()
	}
	if i.relay.pull(w, in, "https", with, failed) {
		return
	}
	check := func(reply *http.Response) error {
		if reply.StatusCode == http.StatusSwitchingProtocols {
			return keepOpen(reply, open)
		}
		return g.reply(reply, r.inspect.Deny)
	}
	if len(g) == 0 {
		r.forward(w, in, "https", check, failed)
		return
	}
	to := &guarded{w, g, r.inspect.Deny}
	r.forward(to, in, "https", check, failed)
	to.check() // trailers
}

// tooMany answers a request that is not served now: clients try again later.
func tooMany(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "corral: "+text.Line(err.Error(), maxShown), http.StatusServiceUnavailable)
}

// begin checks a request, and puts the secret into it. It returns the request to be passed on, which Recheck can end until end is
// called, and what it is sent with.
func (r *Relay) begin(in *http.Request) (out *http.Request, with sent, end func(), d *Denied) {
	// TRACE sends the request back, with the secret.
	if in.Method == http.MethodConnect || in.Method == http.MethodTrace {
		return nil, sent{}, func() {}, denied("the method %s", in.Method)
	}
	paths, d := readings(in.URL)
	if d == nil {
		d = overrides(in.Header)
	}
	if d != nil {
		return nil, sent{}, func() {}, d
	}
	ctx, cancel := context.WithCancel(in.Context())
	u := &underway{method: in.Method, paths: paths, cancel: cancel}
	end = func() { r.forget(u) }
	if d = r.decide(u); d != nil {
		return nil, sent{}, end, d
	}
	in.Trailer = nil // nobody checks it
	in.Header.Del("Trailer")
	used, d := r.inspect.exchange(in, u.secret)
	if d != nil {
		return nil, sent{}, end, d
	}
	r.inspect.strip(in, paths, u.secret)
	with.guard = r.inspect.guard(u.secret)
	with.guard.ask(in)
	if used {
		with.secret = u.secret
	}
	return in.WithContext(ctx), with, end, nil
}

// A sent says what a request was sent with.
type sent struct {
	secret *Secret // that took the placeholder's place; nil: none did
	guard  guard   // of the response
}

// overrides returns why a request is denied that has a server take another method or path than those that were checked. The client means
// that other request, so it is no use to leave the header out.
func overrides(header http.Header) *Denied {
	if name := overriding(header); name != "" {
		return denied("the header %.100q, for which servers take another method or path than those that rules are about", name)
	}
	return nil
}

// strip leaves out the headers of a request that neither many clients send nor the rules name, unless the rules that allow the request name
// neither methods nor paths: for some header, some server takes another one than was checked.
func (i *Inspection) strip(in *http.Request, paths []string, secret *Secret) {
	if i.Headers == nil {
		return
	}
	var lists [][]string // one for each reading of the path whose rule names methods or paths
	for _, p := range paths {
		if more, all := i.Headers(in.Method, p); !all {
			if secret != nil {
				more = append(slices.Clone(more), secret.Header)
			}
			lists = append(lists, more)
		}
	}
	if dropped := strip(in.Header, lists); len(dropped) > 0 && i.Dropped != nil {
		i.Dropped(dropped)
	}
}

// maxDecodings is how often a path is decoded.
const maxDecodings = 8

// readings returns the ways in which a server may read the path of a URL: with %2F as a character of a name, and as a slash. A path
// that servers resolve in different ways is denied.
func readings(u *url.URL) ([]string, *Denied) {
	literal, decoded := u.EscapedPath(), u.Path
	if literal == "*" || !strings.HasPrefix(literal, "/") || !strings.HasPrefix(decoded, "/") {
		return nil, denied("the path is %.100q, must begin with a slash", literal)
	}
	if strings.ContainsFunc(u.RawQuery, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return nil, denied("the query has a blank or a control character, which ends the address in HTTP/1.1")
	}
	list := []string{decoded}
	// Decoded again, for servers behind proxies that decode.
	for n, p := 0, decoded; ; n++ {
		why := ambiguous(p)
		if n == maxDecodings {
			why = "more than 8 encodings of a character"
		}
		if why != "" {
			return nil, denied("the path %.100q has %s", literal, why)
		}
		again, err := url.PathUnescape(p)
		if err != nil || again == p {
			break
		}
		if strings.Count(again, "/") != strings.Count(p, "/") {
			list = append(list, again)
		}
		p = again
	}
	// The literal reading has the other characters decoded, as rules have them.
	parts := strings.Split(literal, "/")
	for n, part := range parts {
		if plain, err := url.PathUnescape(part); err == nil && !strings.Contains(plain, "/") {
			parts[n] = plain
		}
	}
	if one := strings.Join(parts, "/"); one != decoded {
		list = append(list, one)
	}
	return list, nil
}

// ambiguous returns what servers resolve in different ways in a path, "" if there is nothing.
func ambiguous(p string) string {
	const dots = "a segment that is empty or only dots"
	if strings.ContainsFunc(p, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
		return "a control character or a backslash"
	}
	if !utf8.ValidString(p) {
		return "bytes that are not UTF-8" // some servers turn them into dots and slashes
	}
	if clean := path.Clean(p); clean != p && clean+"/" != p || strings.Contains(p, "//") {
		return dots
	}
	for segment := range strings.SplitSeq(p, "/") {
		// Some servers take a parameter off before they resolve dots.
		if name, _, cut := strings.Cut(segment, ";"); cut && strings.Trim(name, ".") == "" {
			return dots
		}
	}
	return ""
}
