package host

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
)

// TestSocketsBelow finds sockets that wait for a peer in the kernel's list, whatever is in their path.
func TestSocketsBelow(t *testing.T) {
	dir := t.TempDir()
	stream, datagram := filepath.Join(dir, "a b"), filepath.Join(dir, "d")
	l, err := net.Listen("unix", stream)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.ListenPacket("unixgram", datagram)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := SocketsBelow([]string{"/nowhere", dir + "/"})
	if slices.Sort(got); err != nil || !slices.Equal(got, []string{stream, datagram}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := SocketsBelow([]string{dir + "/a", "/nowhere"}); err != nil || len(got) > 0 {
		t.Errorf("below other directories: %q, %v", got, err)
	}
}
