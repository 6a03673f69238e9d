package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"
)

// ConnectTCP connects to a port of a session: see client.Client.Connect, which ports is.
func ConnectTCP(ctx context.Context, ports interface {
	Connect(ctx context.Context, session string, port uint16) (*os.File, error)
}, session string, port uint16,
) (*net.TCPConn, error) {
	f, err := ports.Connect(ctx, session, port)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("a connection to a session is a %T, not one of TCP", conn)
	}
	return tcp, nil
}

// Connect connects to a port of a session.
func (s *Connection) Connect(ctx context.Context, session string, port uint16) (net.Conn, error) {
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	conn, err := ConnectTCP(ctx, c, session, port)
	if err != nil { // no *net.TCPConn of nil in the interface
		return nil, err
	}
	return conn, nil
}

// Ports returns the ports at which processes of a session listen. more says that there may be others.
func (s *Connection) Ports(ctx context.Context, session string) (ports []uint16, more bool, err error) {
	c, err := s.Client()
	if err != nil {
		return nil, false, err
	}
	return c.Ports(ctx, session)
}
