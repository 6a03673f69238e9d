package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Severities (RFC 5424, section 6.2.1).
const (
	warning       = 4
	notice        = 5
	informational = 6
)

// facility is "log audit" (RFC 5424, section 6.2.1).
const facility = 13

// severity returns how severe an event is: what was refused, lost or dropped stands out.
func (m *message) severity() int {
	switch m.event {
	case "gap", "lost", "dropped", "repaired":
		return warning
	case "refused", "denied":
		return notice
	}
	return informational
}

// A syslog is a receiver by RFC 5424: over datagrams of a unix socket, one message each, or over a stream with octet counting (RFC
// 6587, section 3.4.1), which is also the framing of TLS (RFC 5425).
//
// Syslog has no answers. A batch counts as received when the kernel of the other end has all of it (or, of a unix socket, the
// program), so what was on its way when a connection broke is sent again.
type syslog struct {
	*Options
	url    *url.URL
	conn   net.Conn // nil: none
	socket syscall.RawConn
	broken atomic.Pointer[error] // why the stream is of no use any more
	ended  chan struct{}         // closed when the goroutine that watches the stream has ended
}

func newSyslog(o *Options) (*syslog, error) {
	u, err := url.Parse(o.To)
	if err != nil {
		return nil, errors.New("the address of the receiver is not a URL")
	}
	return &syslog{Options: o, url: u}, nil
}

func (s *syslog) stream() bool { return s.url.Scheme != "unix" }

// close closes the connection, if there is one.
func (s *syslog) close() {
	if s.conn == nil {
		return
	}
	_ = s.conn.SetDeadline(time.Now()) // otherwise TLS waits to say that it ends
	_ = s.conn.Close()
	if s.ended != nil {
		<-s.ended
	}
	s.conn, s.ended = nil, nil
	s.broken.Store(nil)
}

// send implements receiver.
func (s *syslog) send(ctx context.Context, batch []message) error {
	err := s.connect(ctx)
	if err == nil {
		conn := s.conn
		stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now()) })
		err = s.write(ctx, batch)
		stop()
	}
	if err != nil {
		s.close()
	}
	return err
}

// connect connects if there is no connection that is of use.
func (s *syslog) connect(ctx context.Context) error {
	if s.conn != nil {
		if why := s.broken.Load(); why == nil {
			return nil
		}
		s.close()
	}
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	network, address := "tcp", s.url.Host
	switch s.url.Scheme {
	case "unix":
		network, address = "unixgram", s.url.Path
	case "unix-stream":
		network, address = "unix", s.url.Path
	}
	plain, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	socket, err := plain.(syscall.Conn).SyscallConn()
	if err != nil {
		return errors.Join(err, plain.Close())
	}
	conn := plain
	if s.url.Scheme == "tls" {
		secure := tls.Client(plain, s.config())
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			return fmt.Errorf("TLS with %s: %w", s.url.Host, err)
		}
		conn = secure
	}
	s.conn, s.socket = conn, socket
	if s.stream() {
		s.ended = make(chan struct{})
		go s.watch(conn, s.ended)
	}
	return nil
}

// config returns the configuration of TLS for the receiver's name.
func (s *syslog) config() *tls.Config {
	c := &tls.Config{}
	if s.TLS != nil {
		c = s.TLS.Clone()
	}
	c.ServerName, c.MinVersion = s.url.Hostname(), tls.VersionTLS12
	return c
}

// watch notices the end of a stream. A receiver has nothing to say, so one that says something is not one, and nothing more is read.
func (s *syslog) watch(conn net.Conn, ended chan struct{}) {
	defer close(ended)
	n, err := conn.Read(make([]byte, 1))
	if n > 0 {
		err = errors.New("it sends data: syslog has no answers")
	}
	err = fmt.Errorf("the receiver has ended the connection: %w", err)
	s.broken.Store(&err)
}

// write writes a batch, and waits until the other end has it.
func (s *syslog) write(ctx context.Context, batch []message) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.Patience)); err != nil { // one for reading would end the goroutine that watches
		return err
	}
	if !s.stream() {
		for _, m := range batch {
			if _, err := s.conn.Write(s.format(&m)); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	for _, m := range batch {
		text := s.format(&m)
		b.WriteString(strconv.Itoa(len(text)))
		b.WriteByte(' ')
		b.Write(text)
	}
	if _, err := s.conn.Write(b.Bytes()); err != nil {
		return err
	}
	return s.received(ctx)
}

// lastWait is how long a batch that was sent when the forwarder is told to end may take: otherwise the next one sends it again.
const lastWait = time.Second

// received waits until nothing that was sent is on its way (SIOCOUTQ, tcp(7), unix(7)).
func (s *syslog) received(ctx context.Context) error {
	pause := time.Millisecond
	for end := time.Now().Add(s.Patience); ; pause = min(2*pause, 50*time.Millisecond) {
		if ctx.Err() != nil && time.Until(end) > lastWait {
			end = time.Now().Add(lastWait)
		}
		if why := s.broken.Load(); why != nil {
			return *why
		}
		waiting := 0
		var err error
		if failed := s.socket.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); failed != nil {
			return failed
		}
		if err != nil || waiting == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the receiver has not taken %d bytes in %s", waiting, s.Patience)
		}
		time.Sleep(pause)
	}
}

// format returns a message of RFC 5424.
func (s *syslog) format(m *message) []byte {
	at := "-"
	if !m.time.IsZero() {
		at = m.time.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	// sequenceId counts to 2147483647 and starts again at 1 (RFC 5424, section 7.3.1).
	return fmt.Appendf(nil, `<%d>1 %s %s corral-audit %s %s [meta sequenceId="%d"] %s`,
		facility*8+m.severity(), at, header(s.Host, 255), header(m.instance, 128), header(m.event, 32), (m.seq-1)%2147483647+1, m.text)
}

// header returns a field of the header of a message: printable ASCII without blanks.
func header(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < 33 || r > 126 {
			return -1
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), limit)]
}
