package peer

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// What questions about TCP sockets to the kernel and its answers have in common (sock_diag(7)). Nothing here makes a system call: whoever
// asks decides how long to wait, and how much to read.
const (
	// DiagMessageSize is the size of struct inet_diag_msg of linux/inet_diag.h, with which an answer about a socket begins.
	DiagMessageSize = 72
	// DiagListening is TCP_LISTEN, a state.
	DiagListening = 10

	// requestSize is the size of struct inet_diag_req_v2, which ends with a struct inet_diag_sockid, of sockidSize.
	requestSize = 56
	sockidSize  = 48
)

// DiagQuestion returns a message to a socket of NETLINK_INET_DIAG about TCP sockets of a family (AF_INET or AF_INET6) in some states, a bit
// each. flags are those of the message besides NLM_F_REQUEST. identity is the beginning of a struct inet_diag_sockid; the rest is 0.
func DiagQuestion(flags uint16, family byte, states uint32, identity []byte) []byte {
	b := make([]byte, 0, unix.SizeofNlMsghdr+requestSize)
	b = binary.NativeEndian.AppendUint32(b, unix.SizeofNlMsghdr+requestSize)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = append(b, make([]byte, 8)...)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, states)
	return append(append(b, identity...), make([]byte, sockidSize-len(identity))...)
}

// DiagLocal returns the address and port of the socket that a struct inet_diag_msg is about. An IPv4 address of an IPv6 socket is mapped.
func DiagLocal(message []byte) netip.AddrPort {
	var a netip.Addr
	if message[0] == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(message[8:]))
	} else {
		a = netip.AddrFrom16([16]byte(message[8:]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(message[4:]))
}
