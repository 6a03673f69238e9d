// Package nettest makes network namespaces for tests: one in place of a job's, others in place of the Internet.
package nettest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// A Space is a network namespace. It ends with the test.
type Space struct {
	t  testing.TB
	ns *os.File
}

// New returns a namespace with a loopback device that is up and has these addresses in addition. The caller must be root.
func New(t testing.TB, addrs ...netip.Prefix) *Space {
	t.Helper()
	s := &Space{t: t}
	var err error
	sandboxtest.OnThread(func() { s.ns, err = makeSpace(addrs) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.ns.Close() })
	return s
}

// Job returns a namespace like that of a job with a door.
func Job(t testing.TB) *Space {
	t.Helper()
	s := New(t, netip.MustParsePrefix("198.18.0.1/15"))
	s.Do(func() error {
		// The thread's own view of /proc: /proc/sys/net is that of the reader's namespace.
		return os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	})
	return s
}

func makeSpace(addrs []netip.Prefix) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := loopback(addrs); err != nil {
		return nil, err
	}
	return os.Open("/proc/thread-self/ns/net")
}

// loopback brings the loopback device of the namespace up, with these addresses in addition.
func loopback(addrs []netip.Prefix) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for n, prefix := range addrs {
		if err := addAddress(fd, fmt.Sprintf("lo:%d", n+1), prefix); err != nil {
			return fmt.Errorf("add %s to lo: %w", prefix, err)
		}
	}
	return nil
}

func addAddress(fd int, label string, prefix netip.Prefix) error {
	request, err := unix.NewIfreq(label)
	if err != nil {
		return err
	}
	if err := request.SetInet4Addr(prefix.Addr().AsSlice()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request); err != nil {
		return err
	}
	if err := request.SetInet4Addr(net.CIDRMask(prefix.Bits(), 32)); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, request)
}

// Do calls f on a thread in the namespace and fails the test if f does. Sockets that f makes stay in the namespace.
func (s *Space) Do(f func() error) {
	s.t.Helper()
	if err := s.Try(f); err != nil {
		s.t.Fatal(err)
	}
}

// Try is like Do, and returns the error.
func (s *Space) Try(f func() error) error {
	var err error
	sandboxtest.OnThread(func() {
		if err = unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET); err == nil {
			err = f()
		}
	})
	return err
}

// TCP returns an unbound TCP socket of the namespace.
func (s *Space) TCP() *os.File {
	s.t.Helper()
	return s.socket(unix.SOCK_STREAM, nil)
}

// Listener returns a TCP socket of the namespace that listens at addr.
func (s *Space) Listener(addr netip.AddrPort) *os.File {
	s.t.Helper()
	f := s.socket(unix.SOCK_STREAM, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())})
	if err := unix.Listen(int(f.Fd()), 128); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// UDP returns a UDP socket of the namespace that is bound to addr.
func (s *Space) UDP(addr netip.AddrPort) *os.File {
	s.t.Helper()
	return s.socket(unix.SOCK_DGRAM, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())})
}

func (s *Space) socket(kind int, addr unix.Sockaddr) *os.File {
	s.t.Helper()
	var fd int
	s.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		if err == nil && addr != nil {
			err = unix.Bind(fd, addr)
		}
		return err
	})
	f := os.NewFile(uintptr(fd), "socket")
	s.t.Cleanup(func() { f.Close() })
	return f
}

// Dial connects from the namespace to an IPv4 address. It fails at once where the kernel does.
func (s *Space) Dial(addr netip.AddrPort) (*net.TCPConn, error) {
	var conn net.Conn
	err := s.Try(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "connection")
		defer f.Close()
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}); err != nil {
			return err
		}
		conn, err = net.FileConn(f)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), nil
}

// Listen listens in the namespace.
func (s *Space) Listen(addr netip.AddrPort) net.Listener {
	s.t.Helper()
	f := s.Listener(addr)
	defer f.Close() // l has its own
	l, err := net.FileListener(f)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// patience is how long Lookup waits for an answer.
const patience = 20 * time.Second

// Lookup asks the DNS server at 127.0.0.1:53 of the namespace for the IPv4 address of a name. The address is invalid if the answer
// has none.
func (s *Space) Lookup(name string) (netip.Addr, dnsmessage.RCode) {
	s.t.Helper()
	question := dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{question}}
	reply, err := s.ask(&m)
	if err == nil {
		err = m.Unpack(reply)
	}
	if err != nil {
		s.t.Fatalf("look up %s: %v", name, err)
	}
	if len(m.Answers) == 0 {
		return netip.Addr{}, m.RCode
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), m.RCode
}

func (s *Space) ask(m *dnsmessage.Message) ([]byte, error) {
	query, err := m.Pack()
	if err != nil {
		return nil, err
	}
	file := s.UDP(netip.MustParseAddrPort("127.0.0.1:0"))
	defer file.Close()
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(sandboxtest.Slow(patience)))
	if _, err := conn.WriteTo(query, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:53"))); err != nil {
		return nil, err
	}
	reply := make([]byte, 512)
	n, _, err := conn.ReadFrom(reply)
	return reply[:n], err
}
