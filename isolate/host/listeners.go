package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/peer"
)

// MaxPorts is the maximum number of ports that Listeners returns.
const MaxPorts = 64

const (
	// cookieAt is where a struct inet_diag_msg has the socket's cookie: two words, the lower one first.
	cookieAt = 44
	// maxListing is how many bytes of the kernel's list are read: some 700 listeners of each family.
	maxListing = 64 << 10
	// listingPatience is the timeout of reading the list, which the kernel has at once.
	listingPatience = time.Second
)

// Listeners returns the TCP ports, in ascending order, at which a process listens in the network namespace of a socket of
// NETLINK_INET_DIAG (sock_diag(7)), so that a connection to 127.0.0.1 or ::1 reaches it. more says that there may be others.
// The listener with the cookie except is left out, see Cookie; no socket has cookie 0.
func Listeners(socket *os.File, except uint64) (ports []uint16, more bool, err error) {
	fd := int(socket.Fd())
	patience := unix.NsecToTimeval(int64(listingPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return nil, false, fmt.Errorf("setsockopt: %w", err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		found, cut, err := listenersOf(fd, family, except)
		if err != nil {
			return nil, false, fmt.Errorf("list listeners: %w", err)
		}
		if more = more || cut; cut { // the rest of the list would be in the answer to the next question
			ports = append(ports, found...)
			break
		}
		ports = append(ports, found...)
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if len(ports) > MaxPorts {
		return ports[:MaxPorts], true, nil
	}
	return ports, more, nil
}

// Cookie returns the number by which the kernel tells a socket from all others of this machine since its start (SO_COOKIE).
func Cookie(socket *os.File) (uint64, error) {
	cookie, err := unix.GetsockoptUint64(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("getsockopt: %w", err)
	}
	return cookie, nil
}

// listenersOf asks for the listeners of one family. cut says that there are more.
func listenersOf(fd int, family byte, except uint64) (ports []uint16, cut bool, err error) {
	b := peer.DiagQuestion(unix.NLM_F_DUMP, family, 1<<peer.DiagListening, nil)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, false, err
	}
	buffer := make([]byte, 32<<10)
	for read := 0; read < maxListing; {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		read += n
		more, done, err := readListeners(buffer[:n], except)
		ports = append(ports, more...)
		if done || err != nil {
			return ports, false, err
		}
	}
	return ports, true, nil
}

var errAnswer = errors.New("malformed answer from the kernel")

// readListeners decodes messages of the kernel. done says that they end its list.
func readListeners(b []byte, except uint64) (ports []uint16, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return nil, false, errAnswer
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return ports, true, nil
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				return nil, false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			}
			return nil, false, errAnswer
		case unix.SOCK_DIAG_BY_FAMILY:
			if len(body) < peer.DiagMessageSize {
				return nil, false, errAnswer
			}
			if at := peer.DiagLocal(body); reached(at.Addr()) && binary.NativeEndian.Uint64(body[cookieAt:]) != except {
				ports = append(ports, at.Port())
			}
		}
		b = b[min(len(b), (size+3)&^3):] // NLMSG_ALIGN
	}
	return ports, false, nil
}

// reached reports whether a listener at an address is reached at 127.0.0.1 or ::1.
func reached(a netip.Addr) bool {
	return a.IsUnspecified() || a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}
