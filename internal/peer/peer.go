// Package peer tells which user is at the other end of a connection of this machine, and encodes questions about TCP sockets to the kernel.
package peer

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// User returns the user at the other end of a unix socket, as of connect(2) or listen(2) (SO_PEERCRED, unix(7)).
func User(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if controlled := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlled != nil {
		return 0, controlled
	}
	if err != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	return cred.Uid, nil
}
