package job

import (
	"fmt"
	"syscall"
)

// NobodyListens is the refusal of a connection to a port of a session at which no process listens.
func NobodyListens(port uint16) *Refusal {
	return &Refusal{
		Step: "connect", Errno: int(syscall.ECONNREFUSED), Message: fmt.Sprintf("no process in the session listens at port %d", port),
		Hint: "start a server in the session that listens at 127.0.0.1 or at all addresses, and try again",
	}
}
