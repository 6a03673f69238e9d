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
