package gate

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListen: pages for browsers of this machine are served at both addresses of localhost, and nowhere else. Another user cannot take the
// same port at the other address, to which a browser would send the cookies of the page.
func TestListen(t *testing.T) {
	for _, address := range []string{"localhost:0", "127.0.0.1:0", "[::1]:0"} {
		list, port, err := Listen(address)
		if err != nil || len(list) != 2 {
			t.Errorf("%s: %v, %v", address, list, err)
		}
		for _, other := range []string{"127.0.0.1", "[::1]", "0.0.0.0", "[::]"} {
			if l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", other, port)); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("%s: another server listens at %s: %v, %v", address, other, l, err)
			}
		}
		for _, l := range list {
			if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() || a.Port != int(port) {
				t.Errorf("%s: listens at %s, port %d", address, a, port)
			}
			l.Close()
		}
	}
	for _, address := range []string{"", "7071", ":7071", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.0.0.2:0", "127.1:0", "LOCALHOST.:0", "example.org:0", "localhost:x", "localhost:99999"} {
		if list, _, err := Listen(address); err == nil {
			t.Errorf("%s: %v", address, list)
		}
	}
}
