package egress

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"corral/egress/authority"
	"corral/egress/control"
	"corral/egress/dial"
	"corral/egress/relay"
	"corral/egress/store"
	"corral/internal/log"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/policy/network"
)

// Addresses of the Internet of the tests.
var (
	alpha = netip.MustParseAddr("192.0.2.10")
	beta  = netip.MustParseAddr("198.51.100.20")
)

// A world is a server with a supervisor, jobs, and an Internet of its own.
type world struct {
	t        *testing.T
	internet *nettest.Space
	server   *Server
	control  int
	log      *logBuffer
	served   chan error
	last     uint64
	kept     string // the directory of the store

	mu    sync.Mutex
	names map[string]netip.Addr
	real  *dial.Dialer // for its checks

	authority *relay.Issuer      // of the Internet of the test
	ours      *control.Authority // that the jobs trust; nil: none
	secrets   []control.Secret
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns the lines so far.
func (l *logBuffer) lines(t *testing.T) (out []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// Dial implements Dialer: it connects in the Internet of the test.
func (w *world) Dial(_ context.Context, name string, port uint16, private []netip.Prefix) (net.Conn, error) {
	w.mu.Lock()
	addr := w.names[name]
	w.mu.Unlock()
	if !addr.IsValid() {
		return nil, fmt.Errorf("look up %s: no such host", name)
	}
	if err := w.Check(name, addr, private); err != nil {
		return nil, err
	}
	return w.internet.Dial(netip.AddrPortFrom(addr, port))
}

// Check implements Dialer.
func (w *world) Check(name string, addr netip.Addr, private []netip.Prefix) error {
	return w.real.Check(name, addr, private)
}

func newWorld(t *testing.T, files int) *world {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	w := &world{
		t: t, internet: nettest.New(t, netip.PrefixFrom(alpha, 32), netip.PrefixFrom(beta, 32)), log: &logBuffer{}, served: make(chan error, 1),
		names: map[string]netip.Addr{"alpha.example.org": alpha, "beta.example.org": beta}, real: dial.New(nil),
	}
	w.server = New(Config{Dialer: w, Log: log.New(w.log, 0, false), Roots: w.roots(), Store: w.store(), Connections: doorConns, Files: files})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.control = pair[0]
	go func() { w.served <- w.server.Serve(os.NewFile(uintptr(pair[1]), "control")) }()
	t.Cleanup(func() {
		unix.Close(w.control)
		if err := <-w.served; err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return w
}

// store returns the store of the user's packages.
func (w *world) store() *store.Store {
	w.t.Helper()
	w.kept = w.t.TempDir()
	dir, err := os.Open(w.kept)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { dir.Close() })
	s, err := store.Open(dir, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

// roots returns the authorities of the Internet of the test.
func (w *world) roots() *x509.CertPool {
	w.t.Helper()
	a, err := authority.New(time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.authority = relay.NewIssuer(a)
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(w.t, a))
	return pool
}

func mustParse(t *testing.T, a *authority.Authority) *x509.Certificate {
	t.Helper()
	der, _, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everything has the addresses of the tests, which are not those of hosts on the Internet.
const everything = `"private":["192.0.2.0/24","198.51.100.0/24"]`

// tcp returns rules for ports of *.example.org with any protocol.
func tcp(ports string) string {
	return `{"allow":[{"host":"*.example.org","ports":[` + ports + `],"protocol":"tcp"}],` + everything + `}`
}

// A jobDoor is a job with a door.
type jobDoor struct {
	w      *world
	space  *nettest.Space
	number uint64
	files  []*os.File
}

// resolver is where a job's DNS server is.
var resolver = netip.MustParseAddrPort("127.0.0.1:53")

// sockets returns what comes with an Open.
func (w *world) sockets(job *nettest.Space) []*os.File {
	return []*os.File{job.UDP(resolver), job.Listener(resolver), job.TCP(), job.TCP()}
}

// open opens a door for a new job.
func (w *world) open(rules, ask string) *jobDoor {
	w.t.Helper()
	job := nettest.Job(w.t)
	d := &jobDoor{w: w, space: job, files: w.sockets(job)}
	if why := d.reopen(rules, ask); why != "" {
		w.t.Fatal(why)
	}
	return d
}

// reopen sends an Open with the sockets of the job, and returns why there is no door.
func (d *jobDoor) reopen(rules, ask string) string {
	d.w.t.Helper()
	d.w.last++
	d.number = d.w.last
	m, err := control.Encode(control.Open{
		Door: d.number, Name: "job 1", Access: d.w.access(rules), Ask: ask, Placeholder: placeholder, Authority: d.w.ours,
	})
	if err != nil {
		d.w.t.Fatal(err)
	}
	d.w.send(m, d.files...)
	return d.w.reply(control.KindOpened, d.number)
}

// access returns rules with the secrets of the test.
func (w *world) access(rules string) control.Access {
	return control.Access{Rules: json.RawMessage(rules), Secrets: w.secrets}
}

func (w *world) send(m []byte, files ...*os.File) {
	w.t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if err := unix.Sendmsg(w.control, m, unix.UnixRights(fds...), nil, 0); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reply(kind control.Kind, door uint64) string {
	w.t.Helper()
	b := make([]byte, control.MaxMessage)
	n, err := unix.Read(w.control, b)
	if err != nil || n == 0 {
		w.t.Fatalf("no reply: %v", err)
	}
	r, err := control.ReadReply(b[:n])
	if err != nil || r.Kind != kind || r.Door != door {
		w.t.Fatalf("%+v, %v, want one of kind %d for door %d", r, err, kind, door)
	}
	return r.Text
}

// update replaces the rules, and returns when they are in force.
func (d *jobDoor) update(rules string) {
	d.w.t.Helper()
	m, err := control.Encode(control.Update{Door: d.number, Access: d.w.access(rules)})
	if err != nil {
		d.w.t.Fatal(err)
	}
	d.w.send(m)
	// Messages are obeyed in order.
	m, _ = control.Encode(control.Report{Door: 1 << 60})
	d.w.send(m)
	d.w.reply(control.KindReported, 1<<60)
}

func (d *jobDoor) summary(kind control.Kind) control.Summary {
	d.w.t.Helper()
	m, _ := control.Encode(control.Report{Door: d.number})
	if kind == control.KindClose {
		m, _ = control.Encode(control.Close{Door: d.number})
	}
	d.w.send(m)
	text := d.w.reply(control.KindReported, d.number)
	s, err := control.ReadSummary(text)
	if err != nil {
		d.w.t.Fatalf("%q: %v", text, err)
	}
	return s
}

func (d *jobDoor) report() control.Summary { return d.summary(control.KindReport) }

// lookup returns what the job's DNS server answers about a name.
func (d *jobDoor) lookup(name string) (netip.Addr, dnsmessage.RCode) { return d.space.Lookup(name) }

// mustFind returns the address of a name.
func (d *jobDoor) mustFind(name string) netip.Addr {
	d.w.t.Helper()
	addr, code := d.lookup(name)
	if !addr.IsValid() {
		d.w.t.Fatalf("%s: %v", name, code)
	}
	return addr
}

// dial connects to port 7 of a name, from the job.
func (d *jobDoor) dial(name string) *net.TCPConn {
	d.w.t.Helper()
	conn, err := d.space.Dial(netip.AddrPortFrom(d.mustFind(name), 7))
	if err != nil {
		d.w.t.Fatal(err)
	}
	return conn
}

// refused requires that a connection from the job is refused by its kernel.
func (d *jobDoor) refused(addr netip.Addr, port uint16) {
	d.w.t.Helper()
	if conn, err := d.space.Dial(netip.AddrPortFrom(addr, port)); !errors.Is(err, unix.ECONNREFUSED) {
		d.w.t.Errorf("port %d of %s: %v, %v, want ECONNREFUSED", port, addr, conn, err)
	}
}

// echo runs a server that sends everything back.
func (w *world) echo(addr netip.Addr, port uint16) {
	w.t.Helper()
	l := w.internet.Listen(netip.AddrPortFrom(addr, port))
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(struct{ io.Writer }{conn}, conn)
			})
		}
	})
	w.t.Cleanup(func() { l.Close() })
}

// says sends a text and requires that it comes back.
func says(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v, want %q", got, err, text)
	}
}

// mustEnd requires that a connection is closed by the other end.
func mustEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// mustRules returns rules as their JSON.
func mustRules(t *testing.T, r *network.Rules) string {
	t.Helper()
	b, err := network.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
