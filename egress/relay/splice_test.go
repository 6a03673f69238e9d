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

	"corral/internal/test/sandboxtest"
)

// A counted is a splice.Socket that counts, with a bound in each direction.
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
