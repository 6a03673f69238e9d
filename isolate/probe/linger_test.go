package probe

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLingeringSocketDiscarded: the last close of a socket can wait for the other end as long as a client has said (SO_LINGER, socket(7)).
// So a helper does it, which is killed if that takes too long.
func TestLingeringSocketDiscarded(t *testing.T) {
	p, end := newTestProber(t, 300*time.Millisecond)
	before := openDescriptors(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file := lingering(t, conn.(*net.TCPConn))
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	discarded := make(chan struct{})
	go func() {
		p.Discard(owner, file)
		close(discarded)
	}()
	eventually(t, func() string {
		select {
		case <-discarded:
			return ""
		default:
			return "Discard waits for the other end of a socket"
		}
	})
	eventually(t, func() string { return p.closing(before + 2) }) // the listener and the accepted socket
	peer.Close()
	<-discarded
	end()
	p.Close()
}

// lingering returns a blocking copy of a connection, which it closes, with more to send than the other end takes.
func lingering(t *testing.T, conn *net.TCPConn) *os.File {
	t.Helper()
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<20); ; {
		if _, err := conn.Write(b); err != nil {
			break
		}
	}
	if err := conn.SetLinger(3600); err != nil {
		t.Fatal(err)
	}
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := unix.SetNonblock(int(file.Fd()), false); err != nil {
		t.Fatal(err)
	}
	return file
}
