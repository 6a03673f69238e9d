package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/front/forward/status"
	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/store/audit"
	"corral/store/audit/reader"
	"corral/store/audit/record"
)

// A site has an audit log and what a forwarder keeps.
type site struct {
	t        *testing.T
	dir      string
	log      *audit.Log
	position *os.File
	status   string
	said     sandboxtest.Output
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, dir: dir, status: filepath.Join(dir, "status")}
	s.open()
	var err error
	if s.position, err = os.OpenFile(filepath.Join(dir, "position"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.position.Close() })
	return s
}

func (s *site) open() {
	s.t.Helper()
	var err error
	s.log, err = audit.Open(filepath.Join(s.dir, "audit"), audit.Options{Instance: "main", MaxSize: 8 << 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.log.Close() })
}

const trace = "0af7651916cd43dd8448eb211c80319c"

// jobs records n jobs: two records each, and those of rotations.
func (s *site) jobs(n int) {
	s.t.Helper()
	for i := range n {
		who := record.Who{Instance: "main", Job: fmt.Sprintf("job-%d", i), Peer: 1001}
		of, err := s.log.Decided(&record.Decision{
			Who: who, Repo: "/srv/\x1b[31mé\nrepo", Limits: job.Defaults(), Claim: job.Claim{Tool: "run", Request: trace, Reason: "\u202e\x00\r\n<1>1 -"},
		})
		if err == nil {
			err = s.log.Finished(&record.Ending{Who: who, Of: of, Result: job.Result{Status: job.Success}})
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// last returns the number of the last record.
func (s *site) last() uint64 {
	s.t.Helper()
	r, err := reader.Open(filepath.Join(s.dir, "audit"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	return r.Last()
}

// start starts a forwarder. It ends with the test, or when the returned function is called.
func (s *site) start(to string, change ...func(*Options)) (stop func()) {
	s.t.Helper()
	dir, err := os.OpenRoot(filepath.Join(s.dir, "audit"))
	if err != nil {
		s.t.Fatal(err)
	}
	file, err := os.OpenFile(s.status, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	o := Options{
		To: to, Host: "h\x01ost name", Version: "1", Open: func(seq uint64) (reader.File, error) { return reader.OpenFile(dir, seq) },
		Position: s.position, Status: file, Log: slog.New(slog.NewTextHandler(&s.said, nil)),
		Poll: time.Millisecond, Pause: 5 * time.Millisecond,
		// A receiver that a busy machine holds up must not count as one that has gone: it would get a batch twice.
		Patience: sandboxtest.Slow(time.Minute),
	}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := errors.Join(<-ended, file.Close(), dir.Close()); err != nil {
				s.t.Errorf("the forwarder ended: %v", err)
			}
		})
	}
	s.t.Cleanup(stop)
	return stop
}

// reaches waits until the status is as wanted.
func (s *site) reaches(what string, wanted func(status.Status) bool) status.Status {
	s.t.Helper()
	var now status.Status
	sandboxtest.Eventually(s.t, sandboxtest.Slow(30*time.Second), what, func() bool {
		var ok bool
		now, ok = status.Read(s.status)
		return ok && wanted(now)
	})
	return now
}

// sent waits until everything is sent.
func (s *site) sent() status.Status {
	s.t.Helper()
	last := s.last()
	return s.reaches("everything is sent", func(now status.Status) bool { return now.Seq == last })
}

// A pile has what a receiver got.
type pile struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (p *pile) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, text)
}

func (p *pile) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.all...)
}

// seqs returns the numbers of the records in messages, and the notices.
func seqs(t *testing.T, list []string) (all []uint64, notices []string) {
	t.Helper()
	for _, text := range list {
		body := text[strings.Index(text, "{"):]
		var r struct {
			Seq   uint64
			Event string
		}
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		if r.Event == "gap" {
			notices = append(notices, body)
			continue
		}
		all = append(all, r.Seq)
	}
	return all, notices
}

// complete checks that all records up to last have arrived, in order; with repeats, some may have come several times.
func (p *pile) complete(t *testing.T, last uint64, repeats bool) {
	t.Helper()
	next := uint64(1)
	all, _ := seqs(t, p.list())
	for _, seq := range all {
		if seq > next || seq < next && !repeats {
			t.Fatalf("record %d came in place of %d", seq, next)
		}
		if seq == next {
			next++
		}
	}
	if next != last+1 {
		t.Errorf("records up to %d have come, there are %d", next-1, last)
	}
}

// readFrames adds the messages of a stream (octet counting) until it ends or is malformed.
func (p *pile) readFrames(t *testing.T, conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		digits, err := in.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSuffix(digits, " "))
		if err != nil || n <= 0 || n > 64<<10 || digits[0] == '0' {
			t.Errorf("the length of a message is %q", digits)
			return
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return
		}
		p.add(string(text))
	}
}

// accept serves each connection with do.
func accept(t *testing.T, l net.Listener, do func(net.Conn)) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn)
			}()
		}
	}()
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// authority returns a certificate for example.com and 127.0.0.1, and the configuration of a client that trusts it.
func authority(t *testing.T) (tls.Certificate, *tls.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// TestSyslog: each transport gets every record once, in the form of RFC 5424 and in order, across files of the audit log; a forwarder
// that is started again continues, and text of jobs stays within its message.
func TestSyslog(t *testing.T) {
	certificate, trust := authority(t)
	for _, scheme := range []string{"unix", "unix-stream", "tcp", "tls"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s, got := newSite(t), &pile{}
			var to string
			switch scheme {
			case "unix":
				path := filepath.Join(t.TempDir(), "log")
				conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				go func() {
					b := make([]byte, 64<<10)
					for n, err := conn.Read(b); err == nil; n, err = conn.Read(b) {
						got.add(string(b[:n]))
					}
				}()
				to = "unix://" + path
			case "unix-stream":
				path := filepath.Join(t.TempDir(), "log")
				accept(t, listen(t, "unix", path), func(c net.Conn) { got.readFrames(t, c) })
				to = "unix-stream://" + path
			case "tcp":
				l := listen(t, "tcp", "127.0.0.1:0")
				accept(t, l, func(c net.Conn) { got.readFrames(t, c) })
				to = "tcp://" + l.Addr().String()
			case "tls":
				l := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
				accept(t, l, func(c net.Conn) { got.readFrames(t, c) })
				to = "tls://" + l.Addr().String()
			}
			s.jobs(300) // more than a batch, and several files
			stop := s.start(to, func(o *Options) { o.TLS = trust })
			s.sent()
			s.jobs(5)
			now := s.sent()
			stop()
			if now.Dropped != 0 || now.Sent != now.Seq {
				t.Errorf("%+v", now)
			}
			s.jobs(5)
			s.start(to, func(o *Options) { o.TLS = trust })
			s.sent()
			last := s.last()
			sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), "the receiver has read all", func() bool { return len(got.list()) >= int(last) })
			got.complete(t, last, false)
			first := got.list()[0]
			head, _, _ := strings.Cut(first, "{")
			var at string
			var n int
			if _, err := fmt.Sscanf(head, "<110>1 %s hostname corral-audit main decided [meta sequenceId=\"1\"] %n", &at, &n); err != nil && !strings.Contains(head, ` hostname corral-audit main decided [meta sequenceId="1"] `) {
				t.Errorf("%q: %v", head, err)
			}
			if _, err := time.Parse("2006-01-02T15:04:05.000000Z", strings.Fields(head)[1]); err != nil {
				t.Error(err)
			}
			if strings.ContainsAny(first, "\x00\x1b\r\n\u202e") {
				t.Errorf("%q", first)
			}
		})
	}
}
