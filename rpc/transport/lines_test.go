package transport

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/rpc"
)

// A piped is a connection over two pipes that are blocking, as those of a shell.
type piped struct {
	rpc.Conn
	in, out *os.File // the other ends
}

func newPiped(t *testing.T) *piped {
	t.Helper()
	var fds [4]int
	for n := 0; n < 4; n += 2 {
		if err := unix.Pipe2(fds[n:n+2], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	var files [4]*os.File
	for n, fd := range fds {
		files[n] = os.NewFile(uintptr(fd), "pipe")
		t.Cleanup(func() { _ = files[n].Close() })
	}
	c, err := Stdio(files[0], files[3])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &piped{c, files[1], files[2]}
}

func TestStdio(t *testing.T) {
	p := newPiped(t)
	_, _ = io.WriteString(p.in, "one\ntwo\n")
	for _, want := range []string{"one", "two"} {
		if got, err := p.Read(); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	large := bytes.Repeat([]byte("y"), 3*keptBuffer)
	done := make(chan []byte)
	go func() {
		b := make([]byte, len("a\n")+len(large)+len("\nb\n"))
		_, _ = io.ReadFull(p.out, b)
		done <- b
	}()
	for _, text := range [][]byte{[]byte("a"), large, []byte("b")} {
		if err := p.Write(text); err != nil {
			t.Error(err)
		}
	}
	if got := <-done; string(got) != "a\n"+string(large)+"\nb\n" {
		t.Errorf("%d bytes: %.10q", len(got), got)
	}
	p.in.Close()
	if _, err := p.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// TestStdioClose checks that Close unblocks Read and Write of a client that neither writes nor reads.
func TestStdioClose(t *testing.T) {
	p := newPiped(t)
	results := make(chan error, 2)
	go func() {
		_, err := p.Read()
		results <- err
	}()
	go func() { results <- p.Write(make([]byte, 1<<20)) }() // more than a pipe holds
	sandboxtest.Eventually(t, 20*time.Second, "the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(p.out.Fd()), unix.TIOCINQ)
		return err == nil && n >= 64<<10
	})
	for range 2 {
		_ = p.Close()
	}
	for range 2 {
		select {
		case err := <-results:
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%v", err)
			}
		case <-time.After(sandboxtest.Slow(time.Minute)):
			t.Fatal("still blocked")
		}
	}
	if err := p.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestStdioHangUp checks that the connection ends when out has no readers left, even if nothing is written and in is
// open.
func TestStdioHangUp(t *testing.T) {
	p := newPiped(t)
	result := make(chan error, 1)
	go func() {
		_, err := p.Read()
		result <- err
	}()
	p.out.Close()
	select {
	case err := <-result:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%v", err)
		}
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Fatal("still blocked")
	}
}
