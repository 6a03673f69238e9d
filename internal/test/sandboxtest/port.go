package sandboxtest

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a TCP port of 127.0.0.1 and ::1 that stays free until the end of the test for a server that the test starts.
//
// A socket is bound to it and does not listen. The kernel gives the port to nobody else who asks for any, and a program that sets
// SO_REUSEADDR, as servers do and those of Go by default, can listen there (socket(7)). A port that was only looked up could be somebody
// else's by then: tests run beside each other on one network.
func Port(t testing.TB) string {
	t.Helper()
	for range 100 { // another program may have the port at ::1
		port, err := reserve(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = reserve(t, &unix.SockaddrInet6{Addr: [16]byte(net.IPv6loopback), Port: port})
		if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) { // a host may have no IPv6
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port that is free at 127.0.0.1 and ::1")
	return ""
}

// reserve binds a socket to an address until the end of the test, and returns its port.
func reserve(t testing.TB, at unix.Sockaddr) (port int, err error) {
	family := unix.AF_INET
	if _, six := at.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at)); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(fd)
	if v4, ok := bound.(*unix.SockaddrInet4); ok {
		port = v4.Port
	}
	return port, err
}
