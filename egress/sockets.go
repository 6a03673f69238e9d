package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// seedAddress is the address at which seeds meet. It is the job's own address in the range of synthetic addresses.
var seedAddress = netip.MustParseAddr("198.18.0.1")

const (
	// strangers is how many connections of the job's to a listening seed are closed before making a socket fails. The
	// job sees the listening seed in /proc/net/tcp, and can connect to it.
	strangers = 8
	// patience is how long one step between the seeds may take. They are on one loopback device, which takes microseconds.
	patience = time.Second
	backlog  = 64
)

// errSeedsBusy means that the job connected to the seeds itself, or took the address. Another attempt may succeed.
var errSeedsBusy = errors.New("the job uses the address itself")

// A source makes TCP sockets in the network namespace of a job, without a capability and without entering it. A process that has two
// unbound sockets of a namespace, the seeds, gets any number of further ones: one seed listens, the other connects to it, and the
// accepted socket, disconnected, is a new unbound socket of that namespace. Its methods may be called concurrently.
type source struct {
	mu     sync.Mutex
	listen int // seeds
	dial   int
	closed bool
}

// newSource makes a source of two seeds, which it takes over, also on error.
func newSource(a, b *os.File) (*source, error) {
	defer a.Close()
	defer b.Close()
	s := &source{listen: -1, dial: -1}
	var err error
	if s.listen, err = take(a); err == nil {
		s.dial, err = take(b)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// take returns a duplicate of a seed, in non-blocking mode. The process that had the seed before may have ended while it made a
// socket, and left the seed listening or connected.
func take(seed *os.File) (int, error) {
	fd := int(seed.Fd())
	for option, want := range map[int]int{unix.SO_DOMAIN: unix.AF_INET, unix.SO_TYPE: unix.SOCK_STREAM, unix.SO_PROTOCOL: unix.IPPROTO_TCP} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil || got != want {
			return -1, errors.New("a seed is not a TCP socket of IPv4")
		}
	}
	if err := errors.Join(disconnect(fd), bind(fd), unbind(fd)); err != nil {
		return -1, fmt.Errorf("a seed cannot be bound: %w", err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, fmt.Errorf("dup: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return -1, err
	}
	return own, nil
}

// Close closes the seeds. Listeners stay.
func (s *source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, fd := range []int{s.listen, s.dial} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Listen returns a listener at an address of the namespace. It returns errSeedsBusy if the job has taken the address.
func (s *source) Listen(at netip.AddrPort) (*net.TCPListener, error) {
	fd, err := s.socket()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	// Connections of a process that has ended may linger at the address.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("setsockopt: %w", err)
	}
	switch err := unix.Bind(fd, address(at)); {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("bind %s: %w", at, errSeedsBusy)
	case err != nil:
		return nil, fmt.Errorf("bind %s: %w", at, err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	return l.(*net.TCPListener), nil
}

// socket returns a new unbound socket of the namespace.
func (s *source) socket() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return -1, net.ErrClosed
	}
	// Whatever happened last time, both seeds start unbound.
	if err := errors.Join(disconnect(s.listen), disconnect(s.dial)); err != nil {
		return -1, err
	}
	defer func() { _, _ = disconnect(s.dial), disconnect(s.listen) }()
	if err := bind(s.listen); err != nil {
		return -1, err
	}
	if err := unix.Listen(s.listen, strangers); err != nil {
		return -1, fmt.Errorf("listen on a seed: %w", err)
	}
	to, err := local(s.listen)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(s.dial, address(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, fmt.Errorf("connect a seed: %w", err)
	}
	from, err := local(s.dial)
	if err != nil {
		return -1, err
	}
	fd, err := s.accept(from)
	if err != nil {
		return -1, err
	}
	if err := disconnect(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// accept returns the connection of the other seed, and closes those of the job.
func (s *source) accept(from netip.AddrPort) (int, error) {
	for range strangers + 1 {
		if err := await(s.listen, time.Now().Add(patience)); err != nil {
			return -1, err
		}
		fd, peer, err := unix.Accept4(s.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return -1, fmt.Errorf("accept a seed: %w", err)
		case peerOf(peer) == from:
			return fd, nil
		}
		unix.Close(fd)
	}
	return -1, fmt.Errorf("make a socket: %w", errSeedsBusy)
}

// await waits until a connection can be accepted, or until the time end.
func await(fd int, end time.Time) error {
	for {
		left := max(0, time.Until(end)) // poll(2) waits forever for a negative time
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR) && time.Now().Before(end):
		case err != nil:
			return fmt.Errorf("poll a seed: %w", err)
		case n == 0:
			return fmt.Errorf("make a socket: %w", errSeedsBusy)
		default:
			return nil
		}
	}
}

// disconnect makes a socket unconnected and unbound, whatever it was.
func disconnect(fd int) error {
	if err := connectUnspec(fd); err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

// bind binds a disconnected seed to a port that the kernel chooses, also one that was bound before.
func bind(fd int) error {
	own := address(netip.AddrPortFrom(seedAddress, 0))
	err := unix.Bind(fd, own)
	if errors.Is(err, unix.EINVAL) { // it is bound
		err = unbind(fd)
		if err == nil {
			err = unix.Bind(fd, own)
		}
	}
	if err != nil {
		return fmt.Errorf("bind a seed: %w", err)
	}
	return nil
}

// unbind makes a bound seed unbound, if the kernel chose its port. The kernel gives up the port of a socket when that changes to
// the closed state, in which a socket is that was only bound: tcp_disconnect in net/ipv4/tcp.c.
func unbind(fd int) error {
	if err := unix.Listen(fd, 1); err != nil {
		return fmt.Errorf("listen on a seed: %w", err)
	}
	return disconnect(fd)
}

func address(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func local(fd int) (netip.AddrPort, error) {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	return peerOf(at), nil
}

// peerOf returns the zero AddrPort for an address that is not of IPv4.
func peerOf(at unix.Sockaddr) netip.AddrPort {
	in, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}
