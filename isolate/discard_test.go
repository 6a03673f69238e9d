package isolate

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
)

// TestDiscard: a user whose connections are refused for what they have sent keeps nobody from being served by sending more of
// it. Helpers close it, few for many connections.
func TestDiscard(t *testing.T) {
	const floods = 600
	f := newFront(t)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		for range floods {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := unix.Write(fds[1], []byte("x")); err != nil {
				t.Error(err)
			}
			unix.Close(fds[1])
			conn, err := wire.NewConn(os.NewFile(uintptr(fds[0]), "socket"))
			if err != nil {
				t.Error(err)
				return
			}
			f.s.hangUp(conn)
		}
	}()
	if f.sh("echo works") != "works" {
		t.Error("a job does not work meanwhile")
	}
	<-refused
	eventually(t, func() string {
		f.s.discards.mu.Lock()
		defer f.s.discards.mu.Unlock()
		if f.s.discards.busy || f.s.discards.ending > 0 {
			return "not all are closed"
		}
		return ""
	})
	if n := f.s.discards.count(); n == 0 || n > floods/4 || len(f.s.discards.left) > 0 {
		t.Errorf("%d helpers for %d connections, %d are left", n, floods, len(f.s.discards.left))
	}
}

// count is how many helpers there were.
func (d *discarder) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}
