package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"

	"corral/egress/control"
	"corral/egress/dial"
	"corral/egress/packages"
	"corral/egress/relay"
	"corral/egress/store"
	"corral/internal/text"
)

// A Dialer connects to hosts, as dial.Dialer does.
type Dialer interface {
	// Dial connects to a port of the host name. The error is a *dial.Refused if it has no address that may be reached.
	Dial(ctx context.Context, name string, port uint16, private []netip.Prefix) (net.Conn, error)
	// Check returns an error if an address of the host name must not be reached.
	Check(name string, addr netip.Addr, private []netip.Prefix) error
}

// Config is what a Server needs.
type Config struct {
	Dialer Dialer
	// Names is what Dialer asks for addresses; the supervisor says when it must read the host's files again.
	Names *dial.System
	Log   *slog.Logger // gets a line for each connection
	// Roots are the authorities with which certificates of hosts are verified, where rules are about requests.
	Roots *x509.CertPool
	// Store keeps what jobs get of registries; nil: nothing is kept.
	Store *store.Store
	// Connections is how many a door may have at once.
	Connections int
	// Files is how many descriptors the process may have open. Some are kept for others than jobs.
	Files int
}

// A Server has the doors of one user.
type Server struct {
	Config
	files *budget
	most  int // descriptors of all doors
	// requests has an element for each request of all doors that is served, but those that a door has of its own.
	requests chan struct{}
	cache    *packages.Cache
	doors    map[uint64]*door // used by the goroutine of Serve alone
	work     sync.WaitGroup   // the goroutines of doors

	// authority is that of the door that was opened last, with the certificates that it has issued; nil before. Used by the
	// goroutine of Serve alone.
	authority *relay.Issuer
}

// ownFiles are descriptors for what is not a job's: the pipes of relays, the program's own, and a margin.
const ownFiles = relay.Files + 64

// New returns a Server without doors.
func New(c Config) *Server {
	return &Server{
		Config: c, files: newBudget(c.Files - ownFiles), most: c.Files - ownFiles,
		requests: make(chan struct{}, maxAllRequests), cache: packages.New(c.Store), doors: map[uint64]*door{},
	}
}

// Serve does what the supervisor at the other end of a SOCK_SEQPACKET socket says, until that closes it. Then it closes all
// doors. It takes over the socket. An error means that the other end is not a supervisor of this version.
func (s *Server) Serve(socket *os.File) error {
	l, err := newLine(socket)
	if err != nil {
		return err
	}
	defer l.close()
	defer s.work.Wait()
	defer func() {
		for _, d := range s.doors {
			d.close()
		}
	}()
	for {
		message, files, err := l.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.handle(l, message, files); err != nil {
			return err
		}
	}
}

// handle handles a message of the supervisor, and takes over its descriptors.
func (s *Server) handle(l *line, message []byte, files []*os.File) error {
	defer closeAll(files)
	m, err := control.Read(message)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case control.Open:
		return l.send(control.Reply{Kind: control.KindOpened, Door: m.Door, Text: s.open(m, files)})
	case control.Update:
		if d := s.doors[m.Door]; d != nil {
			d.update(m.Access)
		}
	case control.Names:
		return s.readNames(m, files)
	case control.Report:
		return l.send(s.report(m.Door, false))
	case control.Close:
		return l.send(s.report(m.Door, true))
	}
	return nil
}

// readNames reads the host's files about names again. If they cannot be read, what they said before still applies.
func (s *Server) readNames(m control.Names, files []*os.File) error {
	var readers [2]io.Reader // a nil *os.File would be a reader
	for n, has := range []bool{m.ResolvConf, m.Hosts} {
		switch {
		case !has:
			continue
		case len(files) == 0:
			return fmt.Errorf("%w: a file is missing", control.ErrMalformed)
		}
		readers[n], files = files[0], files[1:]
	}
	err := s.Names.Read(readers[0], readers[1], func(name string) (int, error) {
		if index := m.Devices[name]; index > 0 {
			return index, nil
		}
		return 0, fmt.Errorf("no network device %q", name)
	})
	if err != nil {
		s.Log.Error("the host's name servers and names have changed, and cannot be read", "error", err)
	}
	return nil
}

// maxRefusal bounds the reason for a door that is not opened, in bytes: it has words of the job.
const maxRefusal = 1000

// open makes a door, and returns why it does not, "" if it does.
func (s *Server) open(m control.Open, files []*os.File) string {
	if s.doors[m.Door] != nil {
		return "the door is open already"
	}
	d, err := s.newDoor(m, files)
	if err != nil {
		return text.Cut(err.Error(), maxRefusal)
	}
	s.doors[m.Door] = d
	return ""
}

// report returns what a door was used for since the last report, and closes it if last is set.
func (s *Server) report(door uint64, last bool) control.Reply {
	r := control.Reply{Kind: control.KindReported, Door: door}
	d := s.doors[door]
	if d == nil {
		return r
	}
	if last {
		delete(s.doors, door)
		d.close()
	}
	r.Text = d.record.take().Encode()
	return r
}
