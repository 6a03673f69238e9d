package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Messages of rtnetlink(7) about ids of network namespaces, linux/rtnetlink.h and linux/net_namespace.h.
const (
	newNSID, getNSID         = 88, 90
	attributeID, attributeFD = 1, 3
)

// MarkNetwork gives the network namespace of a socket an id in the namespace of this process, and returns the id. It is
// NetworkGone's until the namespace is gone, which is when the last socket in it is closed and the last process of it has ended.
// The namespace is not entered.
func MarkNetwork(socket *os.File) (id int32, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	namespace := -1
	failed := raw.Control(func(fd uintptr) {
		var errno unix.Errno
		var n uintptr
		if n, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, unix.SIOCGSKNS, 0); errno != 0 {
			err = fmt.Errorf("ioctl SIOCGSKNS: %w", errno)
			return
		}
		namespace = int(n)
	})
	if err = errors.Join(failed, err); err != nil {
		return 0, err
	}
	defer unix.Close(namespace)
	s, err := openRoute()
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	of := attribute(attributeFD, uint32(namespace))
	// -1 is any id that is free. One that exists is as good.
	if _, err := askRoute(s, newNSID, append(attribute(attributeID, ^uint32(0)), of...)); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("give a network namespace an id: %w", err)
	}
	id, err = askRoute(s, getNSID, of)
	if err == nil && id < 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return 0, fmt.Errorf("get the id of a network namespace: %w", err)
	}
	return id, nil
}

// NetworkGone reports whether no network namespace has the id any more that MarkNetwork returned. If that cannot be found out
// it returns false.
func NetworkGone(id int32) bool {
	s, err := openRoute()
	if err != nil {
		return false
	}
	defer unix.Close(s)
	_, err = askRoute(s, getNSID, attribute(attributeID, uint32(id)))
	return errors.Is(err, unix.ENOENT)
}

func openRoute() (int, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return s, nil
}

// attribute encodes an attribute of 32 bits.
func attribute(kind uint16, value uint32) []byte {
	b := binary.NativeEndian.AppendUint16(nil, unix.SizeofRtAttr+4)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.NativeEndian.AppendUint32(b, value)
}

// askRoute sends one request to the kernel, and returns the id in the answer, or 0 if the answer has none.
func askRoute(socket int, kind uint16, attributes []byte) (id int32, err error) {
	const general = 4 // struct rtgenmsg, padded
	flags := uint16(unix.NLM_F_REQUEST)
	if kind == newNSID {
		flags |= unix.NLM_F_ACK
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+general+len(attributes)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(append(b, make([]byte, 8+general)...), attributes...)
	if err := unix.Sendto(socket, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return 0, err
	}
	return readRoute(answer[:n])
}

var errRoute = errors.New("malformed answer from the kernel")

// readRoute decodes an answer of the kernel: an error number, or the id of a network namespace.
func readRoute(b []byte) (id int32, err error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return 0, errRoute
	}
	body := b[unix.SizeofNlMsghdr:]
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		if n := int32(binary.NativeEndian.Uint32(body)); n < 0 {
			return 0, unix.Errno(-n)
		}
		return 0, nil
	}
	body = body[4:] // struct rtgenmsg, padded
	if len(body) < unix.SizeofRtAttr+4 || binary.NativeEndian.Uint16(body[2:]) != attributeID {
		return 0, errRoute
	}
	return int32(binary.NativeEndian.Uint32(body[unix.SizeofRtAttr:])), nil
}
