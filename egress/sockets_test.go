package egress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
)

func newSeeds(t *testing.T, job *nettest.Space) *source {
	t.Helper()
	s, err := newSource(job.TCP(), job.TCP())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestListen: a listener is in the job's namespace and not in the caller's, and gets the job's connections.
func TestListen(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	s := newSeeds(t, job)
	for n := range 100 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 7, byte(n)}), 443)
		l, err := s.Listen(at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := job.Dial(at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if got.LocalAddr().String() != at.String() {
			t.Errorf("accepted at %s, want %s", got.LocalAddr(), at)
		}
		if got.RemoteAddr().String() != conn.LocalAddr().String() {
			t.Errorf("accepted from %s, want %s", got.RemoteAddr(), conn.LocalAddr())
		}
	}
	for at, want := range map[string]error{
		"198.18.7.7:80":      unix.ECONNREFUSED, // no listener
		"198.18.9.9:443":     unix.ECONNREFUSED,
		"169.254.169.254:80": unix.ENETUNREACH,
	} {
		if _, err := job.Dial(netip.MustParseAddrPort(at)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", at, err, want)
		}
	}
	if _, err := nettest.Job(t).Dial(netip.MustParseAddrPort("198.18.7.7:443")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the listener is seen in another namespace: %v", err)
	}
}

// TestSeedAddressTaken: an address that the job listens at is an error, and the next one works.
func TestSeedAddressTaken(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	s := newSeeds(t, job)
	job.Listen(netip.MustParseAddrPort("0.0.0.0:443"))
	if _, err := s.Listen(netip.MustParseAddrPort("198.18.0.2:443")); !errors.Is(err, errSeedsBusy) {
		t.Errorf("got %v, want errSeedsBusy", err)
	}
	l, err := s.Listen(netip.MustParseAddrPort("198.18.0.2:80"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestStranger: a connection of the job to the listening seed is closed, and does not become a listener. The job must not
// be the peer of a socket that the program uses.
func TestStranger(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	for _, count := range []int{1, strangers - 1} {
		job := nettest.Job(t)
		s := newSeeds(t, job)
		if err := unix.Bind(s.listen, address(netip.AddrPortFrom(seedAddress, 0))); err != nil {
			t.Fatal(err)
		}
		if err := unix.Listen(s.listen, strangers); err != nil {
			t.Fatal(err)
		}
		to, err := local(s.listen)
		if err != nil {
			t.Fatal(err)
		}
		var conns []net.Conn
		for range count {
			conn, err := job.Dial(to)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		if err := unix.Connect(s.dial, address(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
		from, err := local(s.dial)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := s.accept(from)
		if err != nil {
			t.Fatal(err)
		}
		if peer, err := unix.Getpeername(fd); err != nil || peerOf(peer) != from {
			t.Errorf("the socket's peer is %v, %v, want the seed at %s", peer, err, from)
		}
		unix.Close(fd)
		for _, conn := range conns {
			if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the job's connection: %v", err)
			}
		}
	}
}

// TestSeedsFlooded: while a job connects to every port that it can guess, listeners are made or refused, and are never the job's.
func TestSeedsFlooded(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	s := newSeeds(t, job)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_ = job.Try(func() error { flood(&stop); return nil })
		})
	}
	made := 0
	for n := range 200 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(n)}), 443)
		l, err := s.Listen(at)
		if err != nil {
			if !errors.Is(err, errSeedsBusy) {
				t.Error(err)
			}
			continue
		}
		made++
		if l.Addr().String() != at.String() {
			t.Errorf("listens at %s, want %s", l.Addr(), at)
		}
		l.Close()
	}
	stop.Store(true)
	wg.Wait()
	if made == 0 {
		t.Error("no listener was made")
	}
}

// flood connects to ports of seedAddress in turn until stop.
func flood(stop *atomic.Bool) {
	for port := 1024; !stop.Load(); port = 1024 + (port+1)%64000 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return
		}
		_ = unix.Connect(fd, address(netip.AddrPortFrom(seedAddress, uint16(port))))
		unix.Close(fd)
	}
}

// TestLeft: seeds that another process left while it made a socket, at any step, make listeners.
func TestLeft(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	for steps := range 4 {
		a, b := job.TCP(), job.TCP()
		var to netip.AddrPort
		var err error
		for _, step := range []func(){
			func() { err = unix.Bind(int(a.Fd()), address(netip.AddrPortFrom(seedAddress, 0))) },
			func() { err = unix.Listen(int(a.Fd()), 1) },
			func() {
				if to, err = local(int(a.Fd())); err == nil {
					err = unix.Connect(int(b.Fd()), address(to))
				}
			},
		}[:steps] {
			if step(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := newSource(a, b)
		if err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		l, err := s.Listen(netip.MustParseAddrPort("198.18.0.2:443"))
		if err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		l.Close()
		s.Close()
	}
}

// TestSeeds: what is not an unbound TCP socket is refused, and a closed source makes nothing.
func TestSeeds(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	bound := job.TCP()
	if err := unix.Bind(int(bound.Fd()), address(netip.AddrPortFrom(seedAddress, 5))); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]*os.File{"bound": bound, "UDP": job.UDP(netip.MustParseAddrPort("127.0.0.1:53")), "file": null} {
		if s, err := newSource(job.TCP(), bad); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	s := newSeeds(t, job)
	s.Close()
	if _, err := s.Listen(netip.MustParseAddrPort("198.18.0.2:443")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestAwaitEnds: waiting for a connection ends, also if it begins after its end, as it can after a signal.
func TestAwaitEnds(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for _, left := range []time.Duration{-time.Minute, 0, time.Millisecond} {
		if err := await(fds[0], time.Now().Add(left)); !errors.Is(err, errSeedsBusy) {
			t.Errorf("with %v left: %v", left, err)
		}
	}
}

// TestListenAgain: an address can be listened at again while connections of the former listener linger there, as after the end of the
// process that had it.
func TestListenAgain(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	job := nettest.Job(t)
	s := newSeeds(t, job)
	at := netip.MustParseAddrPort("198.18.0.2:443")
	for range 2 {
		l, err := s.Listen(at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Dial(at); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close() // the first end: it stays in FIN-WAIT-2, since the job keeps its own
		l.Close()
	}
}
