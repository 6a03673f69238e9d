package peer

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// connectAs connects a socket that a user makes.
func connectAs(t *testing.T, user, family int, to unix.Sockaddr) (fd int) {
	t.Helper()
	var err error
	sandboxtest.OnThread(func() {
		if _, err = unix.SetfsuidRetUid(user); err != nil {
			return
		}
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, to)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestTCPUser: the user of a connection is the one who made its other end, whatever else is at the same ports, and nobody when it is gone:
// the kernel calls that user 0.
func TestTCPUser(t *testing.T) {
	other := os.Getuid()
	if other == 0 {
		other = 54321
	}
	for name, c := range map[string]struct {
		listen string
		family int
		to     func(port int) unix.Sockaddr
		after  func(fd int)
		gone   bool
	}{
		"IPv4": {"127.0.0.1:0", unix.AF_INET, at4, nil, false},
		"IPv6": {"[::1]:0", unix.AF_INET6, func(port int) unix.Sockaddr {
			return &unix.SockaddrInet6{Port: port, Addr: [16]byte(net.IPv6loopback)}
		}, nil, false},
		"IPv4 by a socket of IPv6": {"127.0.0.1:0", unix.AF_INET6, func(port int) unix.Sockaddr {
			return &unix.SockaddrInet6{Port: port, Addr: [16]byte(net.IPv4(127, 0, 0, 1).To16())}
		}, nil, false},
		"IPv4 at a listener of IPv6": {"[::]:0", unix.AF_INET, at4, nil, false},
		"half closed":                {"127.0.0.1:0", unix.AF_INET, at4, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }, false},
		"closed":                     {"127.0.0.1:0", unix.AF_INET, at4, func(fd int) { _ = unix.Close(fd) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", c.listen)
			if err != nil {
				t.Skip(err) // a host without IPv6
			}
			defer l.Close()
			fd := connectAs(t, other, c.family, c.to(l.Addr().(*net.TCPAddr).Port))
			if !c.gone {
				defer unix.Close(fd)
			}
			served, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer served.Close()
			if c.after != nil {
				c.after(fd)
			}
			uid, err := TCPUser(served)
			if c.gone && !errors.Is(err, ErrNotHere) || !c.gone && (err != nil || int(uid) != other) {
				t.Errorf("user %d, %v, want %d", uid, err, other)
			}
		})
	}
}

func at4(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} }

// TestTCPUserListener: a listener at the port of a connection that has ended is not taken for its other end.
func TestTCPUserListener(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := connectAs(t, os.Getuid(), unix.AF_INET, at4(l.Addr().(*net.TCPAddr).Port))
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd) // by RST: nothing is left of it
	reuse := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return err
	}}
	again, err := reuse.Listen(t.Context(), "tcp4", served.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if uid, err := TCPUser(served); !errors.Is(err, ErrNotHere) {
		t.Errorf("user %d, %v", uid, err)
	}
}

// TestTCPUserOther: other connections have no such user.
func TestTCPUserOther(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if uid, err := TCPUser(a); err == nil {
		t.Errorf("user %d", uid)
	}
}
