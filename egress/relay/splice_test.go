package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// A counted is a Socket that counts, with a bound in each direction.
type counted struct {
	*net.TCPConn
	in, out, read atomic.Int64
	maxIn, maxOut int64 // 0: none
}

var errBound = errors.New("over the bound")

func (c *counted) Received(n int) (int, error) { return count(&c.in, c.maxIn, n) }

func (c *counted) Sending(n int) (int, error) { return count(&c.out, c.maxOut, n) }

func (c *counted) Unsent(n int) { c.out.Add(-int64(n)) }

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.read.Add(int64(n))
	within, over := c.Received(n)
	return within, errors.Join(err, over)
}

func (c *counted) Write(p []byte) (int, error) {
	within, over := c.Sending(len(p))
	n, err := c.TCPConn.Write(p[:within])
	c.Unsent(within - n)
	return n, errors.Join(err, over)
}

func count(total *atomic.Int64, bound int64, n int) (int, error) {
	if after := total.Add(int64(n)); bound > 0 && after > bound {
		over := min(int64(n), after-bound)
		total.Add(-over)
		return n - int(over), errBound
	}
	return n, nil
}

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	done := make(chan struct{})
	addr := listen(t, func(c net.Conn) { accepted <- c; <-done })
	t.Cleanup(func() { close(done) })
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn), (<-accepted).(*net.TCPConn)
}

// countedPair returns both ends of a connection. The far one counts.
func countedPair(t *testing.T) (near *net.TCPConn, far *counted) {
	t.Helper()
	near, conn := pair(t)
	return near, &counted{TCPConn: conn}
}

// spliced relays between a client and a server through two counted sockets. Serve's result is on the channel.
func spliced(t *testing.T, inner, outer *counted) (client, server *net.TCPConn, result <-chan error) {
	t.Helper()
	client, inner.TCPConn = pair(t)
	server, outer.TCPConn = pair(t)
	r := New("example.org", 5432, TCP, func(context.Context) (net.Conn, error) { return outer, nil })
	served := make(chan error, 1)
	go func() { served <- r.Serve(t.Context(), inner) }()
	return client, server, served
}

// TestSplice: everything arrives in order, in both directions, with slow readers too, and is counted once.
func TestSplice(t *testing.T) {
	inner, outer := &counted{}, &counted{}
	client, server, result := spliced(t, inner, outer)
	sent := make([]byte, 16<<20+12345)
	_, _ = rand.Read(sent)
	received := make(chan []byte, 2)
	for _, conn := range []*net.TCPConn{client, server} {
		go func() { _, _ = conn.Write(sent); _ = conn.CloseWrite() }()
		go func() {
			var all []byte
			for part := make([]byte, 100<<10); ; {
				n, err := conn.Read(part)
				all = append(all, part[:n]...)
				if err != nil {
					break
				}
			}
			received <- all
		}()
	}
	for range 2 {
		if got := <-received; !bytes.Equal(got, sent) {
			t.Errorf("%d bytes arrived, not the %d that were sent", len(got), len(sent))
		}
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	for name, c := range map[string]*counted{"inner": inner, "outer": outer} {
		if in, out := c.in.Load(), c.out.Load(); in != int64(len(sent)) || out != int64(len(sent)) {
			t.Errorf("%s: %d bytes in, %d out, want %d", name, in, out, len(sent))
		}
		if read := c.read.Load(); read > int64(len(sent))*9/10 {
			t.Errorf("%s: %d of %d bytes were read by the process", name, read, len(sent))
		}
	}
}

// TestReset: a connection that one end resets is ended, also if the other end sends nothing, and the error is that.
func TestReset(t *testing.T) {
	client, server, result := spliced(t, &counted{}, &counted{})
	if _, err := server.Write([]byte("the beginning")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 13)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.SetLinger(0), server.Close()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(sandboxtest.Slow(20 * time.Second)): // less than the idle time
		t.Error("it goes on")
	}
}

// TestSpliceBounds: not one byte more than the bound is passed on, in either direction.
func TestSpliceBounds(t *testing.T) {
	const bound = 3<<20 + 777
	for name, tt := range map[string]struct {
		inner *counted
		up    bool
	}{
		"up":   {&counted{maxIn: bound}, true},
		"down": {&counted{maxOut: bound}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, server, result := spliced(t, tt.inner, &counted{})
			from, to := server, client
			if tt.up {
				from, to = client, server
			}
			go func() { _, _ = from.Write(make([]byte, 2*bound)) }()
			n, _ := io.Copy(io.Discard, to)
			if err := <-result; !errors.Is(err, errBound) {
				t.Errorf("ended with %v", err)
			}
			if n > bound || tt.inner.in.Load()+tt.inner.out.Load() > bound {
				t.Errorf("%d bytes were passed on, counted as %d, of %d", n, tt.inner.in.Load()+tt.inner.out.Load(), bound)
			}
		})
	}
}

// await waits until something has arrived at a socket.
func await(t *testing.T, s *counted) {
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

// TestPassOn: what has arrived is passed on and counted, and nothing else happens: passOn does not wait, and says nothing of an end.
func TestPassOn(t *testing.T) {
	client, inner := countedPair(t)
	server, outer := countedPair(t)
	s := newSplicer(outer, inner)
	active := 0
	pass := func() {
		t.Helper()
		if err := s.passOn(func() { active++ }); err != nil {
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
	if inner.in.Load() != 5 || outer.out.Load() != 5 || active == 0 {
		t.Errorf("%d bytes received, %d sent, active %d times", inner.in.Load(), outer.out.Load(), active)
	}
	client.Close()
	await(t, inner)
	pass()
	if n, err := inner.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
	if newSplicer(outer, inner.TCPConn) != nil || newSplicer(outer.TCPConn, inner) != nil {
		t.Error("connections that count nothing are passed on")
	}
}

// TestLeavesNothing: what one connection could not send, or must not, is not sent on another.
func TestLeavesNothing(t *testing.T) {
	for name, most := range map[string]int{"the server is gone": 0, "over the bound": 10} {
		t.Run(name, func(t *testing.T) {
			client, inner := countedPair(t)
			server, outer := countedPair(t)
			inner.maxIn = int64(most)
			if _, err := client.Write(bytes.Repeat([]byte("secret"), 1000)); err != nil {
				t.Fatal(err)
			}
			await(t, inner)
			want := errBound
			if most == 0 {
				want = unix.EPIPE
				_ = server.SetLinger(0)
				server.Close()
				await(t, outer)
				_, _ = outer.Read(make([]byte, 1)) // takes the error: ECONNRESET
			}
			if err := newSplicer(outer, inner).passOn(func() {}); !errors.Is(err, want) {
				t.Errorf("ended with %v, want %v", err, want)
			}
			if sent := outer.out.Load(); sent != int64(most) {
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
