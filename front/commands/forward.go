package commands

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/internal/usage"
	"corral/isolate/client/embed"
	"corral/job"
)

// ForwardName is the name under which corral runs the command for `corral session forward`.
const ForwardName = "session-forward"

// ForwardCommand is `corral session forward`, which lets programs of the host reach servers that run in a
// session: it listens on the host's loopback addresses and connects to ports of the session.
func ForwardCommand(args []string) error {
	f := flag.NewFlagSet("session forward", flag.ContinueOnError)
	socket := f.String("supervisor", "", "")
	rest, err := cli.ParseMixed(f, args, usage.Session)
	if err != nil {
		return err
	}
	list, err := parseMappings(rest)
	if err != nil {
		return err
	}
	c, err := supervisor.Dial(*socket)
	if err := errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := cli.UntilStopped()
	defer stop()
	s, err := job.FindSession(ctx, c, rest[0], true)
	if err != nil {
		return err
	}
	if s.Kept {
		return fmt.Errorf("session %s has ended\nhint: corral session list shows open sessions; nothing runs in one that is kept", text.Quote(rest[0]))
	}
	w := &forwarder{session: s, ports: c, sessions: c, check: checkInterval, say: cli.Note}
	if err := w.listen(list, os.Stdout); err != nil {
		return err
	}
	return w.serve(ctx)
}

// checkInterval is the time between two questions whether the session has ended.
const checkInterval = time.Second

// maxPorts is the maximum number of ports of one command.
const maxPorts = 64

// A mapping is a port of the session and the port of the host that stands for it.
type mapping struct {
	port  uint16
	local uint16 // 0: any
	exact bool   // local was given: no other will do
}

// parseMappings reads the arguments: a session and ports.
func parseMappings(args []string) ([]mapping, error) {
	switch {
	case len(args) == 0 || args[0] == "":
		return nil, errors.New("no session given\nhint: corral session forward NAME PORT[:HOSTPORT]; corral session list shows open sessions")
	case len(args) == 1:
		return nil, errors.New("no port given\nhint: corral session forward NAME PORT[:HOSTPORT]")
	case len(args) > 1+maxPorts:
		return nil, fmt.Errorf("%d ports given, the maximum is %d", len(args)-1, maxPorts)
	}
	var list []mapping
	for _, arg := range args[1:] {
		in, out, both := strings.Cut(arg, ":")
		port, err := strconv.ParseUint(in, 10, 16)
		m := mapping{port: uint16(port), local: uint16(port)}
		if both && err == nil {
			port, err = strconv.ParseUint(out, 10, 16)
			m.local, m.exact = uint16(port), port != 0
		}
		if err != nil || m.port == 0 {
			return nil, fmt.Errorf("%s is not PORT or PORT:HOSTPORT\nhint: ports are 1 to 65535, such as 8000 or 8000:8080; HOSTPORT 0 is any that is free", text.Quote(arg))
		}
		list = append(list, m)
	}
	return list, nil
}

// A forwarder connects programs of the host to ports of one session.
type forwarder struct {
	session job.Session
	ports   interface {
		Connect(ctx context.Context, session string, port uint16) (*os.File, error)
	}
	sessions  job.Sessions
	check     time.Duration // between two questions whether the session has ended
	say       func(note string)
	listeners []forwardListener
}

// A forwardListener is one of the host's that stands for a port of the session.
type forwardListener struct {
	net.Listener
	port uint16
}

// listen listens for all mappings, and writes a line for each of them.
func (w *forwarder) listen(list []mapping, to io.Writer) (err error) {
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, m := range list {
		found, err := listenFor(m)
		if err != nil {
			return err
		}
		for _, l := range found {
			w.listeners = append(w.listeners, forwardListener{l, m.port})
		}
		name := text.Escape(cmp.Or(w.session.Name, w.session.ID))
		if _, err := fmt.Fprintf(to, "%s -> port %d of session %s\n", found[0].Addr(), m.port, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *forwarder) close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
}

// listenFor listens on the loopback addresses of the host, at one port.
func listenFor(m mapping) ([]net.Listener, error) {
	list, err := listenAt(m.local)
	if errors.Is(err, unix.EADDRINUSE) && !m.exact {
		list, err = listenAt(0)
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		err = fmt.Errorf("port %d of the host is in use\nhint: %d:HOSTPORT selects another one; %[2]d:0 one that is free", m.local, m.port)
	case errors.Is(err, unix.EACCES):
		err = fmt.Errorf("port %d of the host is for root\nhint: %d:HOSTPORT selects another one, from 1024", m.local, m.port)
	}
	return list, err
}

// maxAttempts is how often a port is chosen that is free at 127.0.0.1 before one of them must be free at ::1, too.
const maxAttempts = 16

// listenAt listens at one port of 127.0.0.1 and, if the host has IPv6, of ::1: a browser that is told localhost may take
// either, and must not reach another program at one of them.
func listenAt(port uint16) ([]net.Listener, error) {
	for n := 1; ; n++ {
		four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return nil, err
		}
		_, chosen, _ := net.SplitHostPort(four.Addr().String())
		six, err := net.Listen("tcp6", net.JoinHostPort("::1", chosen))
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case !errors.Is(err, unix.EADDRINUSE):
			return []net.Listener{four}, nil // a host without IPv6
		}
		_ = four.Close()
		if port != 0 || n == maxAttempts {
			return nil, err
		}
	}
}
