package login

import (
	"net"
	"testing"
)

// TestListen: pages for browsers of this machine are served on the loopback interface alone, for localhost at both of its addresses.
func TestListen(t *testing.T) {
	for address, want := range map[string]int{"localhost:0": 2, "127.0.0.1:0": 1, "[::1]:0": 1, "127.0.0.2:0": 1} {
		list, port, err := Listen(address)
		if err != nil || len(list) != want {
			t.Errorf("%s: %v, %v", address, list, err)
		}
		for _, l := range list {
			if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() || a.Port != int(port) {
				t.Errorf("%s: listens at %s, port %d", address, a, port)
			}
			l.Close()
		}
	}
	for _, address := range []string{"", "7071", ":7071", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0", "localhost:x", "localhost:99999"} {
		if list, _, err := Listen(address); err == nil {
			t.Errorf("%s: %v", address, list)
		}
	}
}
