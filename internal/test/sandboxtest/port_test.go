package sandboxtest

import (
	"net"
	"testing"
)

// TestPort: a server can listen at the port, and again once it has ended; the kernel gives it to nobody else.
func TestPort(t *testing.T) {
	port := Port(t)
	for range 2 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Close(), l.Close()
	}
	if other := Port(t); other == port {
		t.Errorf("port %s twice", port)
	}
}
