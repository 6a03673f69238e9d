package cell

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/job"
)

// Connect begins a TCP connection to a port of the session's processes, at 127.0.0.1 or at ::1. The jail's init makes the
// socket in the network namespace that the session's jobs share: no process enters that. The socket is non-blocking, and
// the connection may not be complete. Whoever has it decides what closing it takes, see probe.Prober.Discard.
func (j *Jail) Connect(port uint16, v6 bool) (*os.File, error) {
	if err := j.sharesNetwork(); err != nil {
		return nil, err
	}
	ask := uint32(inside.AskConnect4)
	if v6 {
		ask = inside.AskConnect6
	}
	f, err := j.init.connect(inside.ConnectTo(ask, port))
	for _, e := range nobodyListens {
		if errors.Is(err, e) {
			return nil, job.NobodyListens(port)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d: %w", port, err)
	}
	return f, nil
}

// sharesNetwork refuses what depends on the network of a session whose jobs share none.
func (j *Jail) sharesNetwork() error {
	if j.session != nil && j.session.sharesNetwork() {
		return nil
	}
	return &job.Refusal{
		Step: "connect", Message: "the session's jobs do not share a network",
		Hint: "each has a loopback interface of its own; open a session whose jobs share their files: corral session open",
	}
}

// Ports returns the ports at which Connect reaches a process of a job, and whether there may be more: see host.Listeners. The
// door's name server is not one.
func (j *Jail) Ports() (ports []uint16, more bool, err error) {
	if err := j.sharesNetwork(); err != nil {
		return nil, false, err
	}
	socket, err := j.init.ask(inside.AskSockets, func() {})
	if err != nil {
		return nil, false, err
	}
	defer socket.Close()
	var own uint64
	if door := j.door.Load(); door != nil {
		own = door.listener
	}
	return host.Listeners(socket, own)
}

// nobodyListens are the errors of connect(2) at a loopback address without a server: the interface is not up before the
// session's first job is prepared, and the kernel can be without IPv6.
var nobodyListens = []error{unix.ECONNREFUSED, unix.ENETUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT}
