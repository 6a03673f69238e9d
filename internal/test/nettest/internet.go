package nettest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// inInternet is the environment variable of a test process in the namespaces of InInternet.
const inInternet = "CORRAL_TEST_INTERNET"

// InInternet calls run, which returns the exit code of the process, in a network namespace of its own, whose loopback device has the
// network 192.0.2.0/24 (TEST-NET-1), and a mount namespace of its own, where the only name server is NewInternet's. To get there it starts
// the program again. The caller must not be root's child with namespaces of libcontainer.
func InInternet(run func() int) int {
	if sandboxtest.Root() != nil || len(os.Args) > 1 && os.Args[1] == "init" {
		return run()
	}
	if os.Getenv(inInternet) != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "corral-internet-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // in /tmp, and the test has its result
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inInternet+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a network namespace for the tests:", err)
		return 1
	}
	return 0
}

// An Internet is what tests have in place of the Internet: a name server, and servers at addresses of 192.0.2.0/24 in the network
// namespace of the test process.
type Internet struct {
	t     testing.TB
	Roots []byte // the certificate of the authority of Certificate, in PEM

	authority *x509.Certificate
	key       *ecdsa.PrivateKey

	mu      sync.Mutex
	names   map[string]func() []netip.Addr // guarded by mu
	queries []string                       // guarded by mu
}

var prepare = sync.OnceValue(func() error {
	dir := os.Getenv(inInternet)
	if dir == "" {
		return errors.New("the tests do not run in nettest.InInternet")
	}
	if err := loopback([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}); err != nil {
		return err
	}
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil { //nolint:gosec // everybody reads it
		return err
	}
	return unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, "")
})

// NewInternet returns an Internet without hosts. There is one at a time in a process.
func NewInternet(t testing.TB) *Internet {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	if err := prepare(); err != nil {
		t.Fatal(err)
	}
	in := &Internet{t: t, names: map[string]func() []netip.Addr{}}
	in.makeAuthority()
	conn, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.answer(conn)
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return in
}

// Name gives a name addresses.
func (in *Internet) Name(name string, addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	in.NameFunc(name, func() []netip.Addr { return list })
}

// NameFunc makes a function return the addresses of a name, for each query.
func (in *Internet) NameFunc(name string, addrs func() []netip.Addr) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.names[name] = addrs
}

// Queries returns the names that were looked up.
func (in *Internet) Queries() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]string(nil), in.queries...)
}

func (in *Internet) answer(conn net.PacketConn) {
	query := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(query)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(query[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		in.resolve(&m)
		if reply, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

func (in *Internet) resolve(m *dnsmessage.Message) {
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	in.mu.Lock()
	in.queries = append(in.queries, name)
	addrs := in.names[name]
	in.mu.Unlock()
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if addrs == nil {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	for _, a := range addrs() {
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
}

// Listen listens at an address of the Internet, until the end of the test.
func (in *Internet) Listen(addr string) net.Listener {
	in.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { l.Close() })
	return l
}

// Serve serves HTTP at an address, or HTTPS if names is not empty: then also HTTP/2, with a certificate for these names.
func (in *Internet) Serve(addr string, h http.Handler, names ...string) {
	in.t.Helper()
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l := in.Listen(addr)
	serve := func() error { return s.Serve(l) }
	if len(names) > 0 {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{in.Certificate(names...)}, MinVersion: tls.VersionTLS12}
		serve = func() error { return s.ServeTLS(l, "", "") }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve()
	}()
	in.t.Cleanup(func() { _ = s.Close(); <-done })
}

func (in *Internet) makeAuthority() {
	in.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		in.t.Fatal(err)
	}
	in.key = key
	in.authority = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority of a test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	in.Roots = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: in.sign(in.authority, &key.PublicKey)})
}

func (in *Internet) sign(c *x509.Certificate, public *ecdsa.PublicKey) []byte {
	in.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, in.authority, public, in.key)
	if err != nil {
		in.t.Fatal(err)
	}
	return der
}

// Certificate returns a certificate for names.
func (in *Internet) Certificate(names ...string) tls.Certificate {
	in.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		in.t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return tls.Certificate{Certificate: [][]byte{in.sign(leaf, &key.PublicKey)}, PrivateKey: key}
}

// Alternate returns addresses for Internet.NameFunc: one of them for each query, in turn.
func Alternate(addrs ...string) func() []netip.Addr {
	var turn atomic.Int64
	return func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(addrs[int(turn.Add(1)-1)%len(addrs)])}
	}
}

// Trust makes what the processes that the test starts take for the host's trust the authority of the Internet: it puts a bundle
// with it in the place of that of Debian, until the end of the test.
func (in *Internet) Trust(t testing.TB) {
	t.Helper()
	const path = "/etc/ssl/certs/ca-certificates.crt"
	host, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca-certificates.crt")
	err = os.WriteFile(file, slices.Concat(host, in.Roots), 0o600)
	if err := errors.Join(err, os.Chmod(file, 0o644)); err != nil { // whatever the umask: everybody reads it
		t.Fatal(err)
	}
	if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
