package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotHere says that no process of this machine has the other end of a connection any more, or that it never was on this machine.
var ErrNotHere = errors.New("no process of this machine has the other end of the connection")

const (
	// identitySize is the size of the first fields of struct inet_diag_sockid: ports and addresses.
	identitySize = 36
	// answerPatience is the timeout of reading an answer, which the kernel has at once.
	answerPatience = time.Second
)

// TCPUser returns the user whose process made the other end of a TCP connection between two addresses of this machine, as the kernel
// records it (sock_diag(7)). Another user who gets that end as a descriptor counts as its maker.
func TCPUser(conn net.Conn) (uid uint32, err error) {
	here, ok := conn.LocalAddr().(*net.TCPAddr)
	there, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return 0, fmt.Errorf("%T is not a TCP connection", conn)
	}
	identity, family := identityOf(there.AddrPort(), here.AddrPort())
	answer, err := find(identity, family)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	// Without such a connection, the kernel returns a listener. A connection that no process has open any more, such as one in
	// TIME_WAIT, has the inode 0, and user 0, whoever made it.
	inode := binary.NativeEndian.Uint32(answer[68:])
	found := unmapped(DiagLocal(answer))
	if inode == 0 || answer[1] == DiagListening || found != unmapped(there.AddrPort()) {
		return 0, ErrNotHere
	}
	return binary.NativeEndian.Uint32(answer[64:]), nil
}

// identityOf returns the first fields of the struct inet_diag_sockid of a socket, which is at the address at and connected to to.
func identityOf(at, to netip.AddrPort) (identity []byte, family byte) {
	at, to = unmapped(at), unmapped(to)
	family = unix.AF_INET6
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	identity = make([]byte, identitySize)
	binary.BigEndian.PutUint16(identity, at.Port())
	binary.BigEndian.PutUint16(identity[2:], to.Port())
	copy(identity[4:20], at.Addr().AsSlice())
	copy(identity[20:36], to.Addr().AsSlice())
	return identity, family
}

// unmapped returns an address of IPv4 as such, and without the zone of an address of IPv6.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// find asks the kernel for one socket, and returns its struct inet_diag_msg. It does not list sockets: a user can have many.
func find(identity []byte, family byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("socket(AF_NETLINK): %w", err)
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(int64(answerPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return nil, err
	}
	identity = append(identity, 0, 0, 0, 0)                             // at any interface
	identity = append(identity, 255, 255, 255, 255, 255, 255, 255, 255) // INET_DIAG_NOCOOKIE
	b := DiagQuestion(0, family, ^uint32(0), identity)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	return answer(fd)
}

// answer reads the answer to find's question.
func answer(fd int) ([]byte, error) {
	buffer := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(fd, buffer, 0)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(fd, buffer, 0)
	}
	if err != nil {
		return nil, err
	}
	b := buffer[:n]
	if len(b) < unix.SizeofNlMsghdr+4 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	kind, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:]
	switch {
	case kind == unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		if errno == unix.ENOENT {
			return nil, ErrNotHere
		}
		return nil, errno
	case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < DiagMessageSize:
		return nil, fmt.Errorf("an answer of kind %d and %d bytes", kind, n)
	}
	return body, nil
}
