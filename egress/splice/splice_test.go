package splice

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket is a Socket that counts.
type socket struct {
	*net.TCPConn
	received, sent atomic.Int64
	most           int // that Received allows; 0: all
}

var errMost = errors.New("over the bound")

func (s *socket) Received(n int) (int, error) {
	s.received.Add(int64(n))
	if s.most > 0 && n > s.most {
		return s.most, errMost
	}
	return n, nil
}

func (s *socket) Sending(n int) (int, error) {
	s.sent.Add(int64(n))
	return n, nil
}

func (s *socket) Unsent(n int) { s.sent.Add(-int64(n)) }

// pair returns both ends of a connection.
func pair(t *testing.T) (near *net.TCPConn, far *socket) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a.(*net.TCPConn), &socket{TCPConn: b.(*net.TCPConn)}
}

// await waits until something has arrived at a socket.
func await(t *testing.T, s *socket) {
	t.Helper()
	raw, err := s.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
}

// TestPassOn: what has arrived is passed on and counted, and nothing else happens: PassOn does not wait, and says nothing of an end.
func TestPassOn(t *testing.T) {
	client, inner := pair(t)
	server, outer := pair(t)
	s := New(outer, inner)
	active := 0
	pass := func() {
		t.Helper()
		if err := s.PassOn(func() { active++ }); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if active != 0 {
		t.Error("active without bytes")
	}
	if _, err := io.WriteString(client, "hello"); err != nil {
		t.Fatal(err)
	}
	await(t, inner)
	pass()
	got := make([]byte, 5)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if inner.received.Load() != 5 || outer.sent.Load() != 5 || active == 0 {
		t.Errorf("%d bytes received, %d sent, active %d times", inner.received.Load(), outer.sent.Load(), active)
	}
	client.Close()
	await(t, inner)
	pass()
	if n, err := inner.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
	if New(outer, inner.TCPConn) != nil || New(outer.TCPConn, inner) != nil {
		t.Error("connections that count nothing are passed on")
	}
}

// TestLeavesNothing: what one connection could not send, or must not, is not sent on another.
func TestLeavesNothing(t *testing.T) {
	for name, most := range map[string]int{"the server is gone": 0, "over the bound": 10} {
		t.Run(name, func(t *testing.T) {
			client, inner := pair(t)
			server, outer := pair(t)
			inner.most = most
			if _, err := client.Write(bytes.Repeat([]byte("secret"), 1000)); err != nil {
				t.Fatal(err)
			}
			await(t, inner)
			want := errMost
			if most == 0 {
				want = unix.EPIPE
				_ = server.SetLinger(0)
				server.Close()
				await(t, outer)
				_, _ = outer.Read(make([]byte, 1)) // takes the error: ECONNRESET
			}
			if err := New(outer, inner).PassOn(func() {}); !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
			if sent := outer.sent.Load(); sent != int64(most) {
				t.Errorf("%d bytes are counted as sent, want %d", sent, most)
			}
			for p := pipes.take(); p != nil; p = pipes.take() {
				if n, err := unix.Read(p.from, make([]byte, 10)); !errors.Is(err, unix.EAGAIN) {
					t.Errorf("a pipe has %d bytes (%v)", n, err)
				}
				defer pipes.give(p, 0)
			}
		})
	}
}

// TestPipes: the number of pipes is bounded, and one that is not empty is not used again.
func TestPipes(t *testing.T) {
	var p pipePool
	var all []*pipe
	for used := p.take(); used != nil; used = p.take() {
		all = append(all, used)
	}
	if len(all) != maxPipes {
		t.Errorf("%d pipes, want %d", len(all), maxPipes)
	}
	p.give(all[0], 1)
	for _, used := range all[1:] {
		p.give(used, 0)
	}
	if p.size() != maxPipes-1 {
		t.Errorf("%d pipes are kept, want %d", p.size(), maxPipes-1)
	}
	for used := p.take(); used != nil; used = p.take() {
		unix.Close(used.from)
		unix.Close(used.to)
	}
}

// size returns how many pipes are not in use.
func (p *pipePool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}
