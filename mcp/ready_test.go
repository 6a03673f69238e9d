package mcp

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// blockingPipe returns a pipe as a host makes one: neither end is the runtime's to wait for.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// TestReady: what is read is what was written, to its end, and the pipe blocks others as before.
func TestReady(t *testing.T) {
	in, w := blockingPipe(t)
	r, end := whenReady(in)
	defer end()
	if _, ok := r.(*readyReader); !ok {
		t.Fatalf("%T", r)
	}
	text := strings.Repeat("0123456789", 20_000) // more than a pipe has room for
	go func() {
		_, _ = io.WriteString(w, text)
		w.Close()
	}()
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
	}
	raw, err := in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
	})
}

// TestReadyEnds: who waits for a client that writes nothing is told of the end.
func TestReadyEnds(t *testing.T) {
	in, _ := blockingPipe(t)
	r, end := whenReady(in)
	read := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		read <- err
	}()
	end()
	if err := <-read; !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestReadyOrNot: a regular file has always something to read, and other readers are none of the kernel's.
func TestReadyOrNot(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parked, w, err := os.Pipe() // which the runtime waits for
	if err != nil {
		t.Fatal(err)
	}
	defer parked.Close()
	w.Close()
	for _, in := range []io.Reader{f, parked, strings.NewReader("text")} {
		r, end := whenReady(in)
		if r != in {
			t.Errorf("%T of a %T", r, in)
		}
		end()
	}
}

// TestSend: who sends writes it himself, unless another writes; then it comes after that, in order.
func TestSend(t *testing.T) {
	r, w := io.Pipe()
	o := newOutbox(w)
	go o.run()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		o.send(nil, []byte("one"))
	}()
	buffer := make([]byte, 1)
	if _, err := io.ReadFull(r, buffer); err != nil { // the first is being written now
		t.Fatal(err)
	}
	o.send(nil, []byte("two"))
	o.put(nil, []byte("three"))
	o.close()
	want := "ne\ntwo\nthree\n"
	rest := make([]byte, len(want))
	if _, err := io.ReadFull(r, rest); err != nil || string(rest) != want {
		t.Errorf("%q, %v", rest, err)
	}
	within(t, "who sent", sent)
	within(t, "the end", o.done)
	if o.send(nil, []byte("late")); o.waiting() != 0 {
		t.Errorf("%d bytes wait", o.waiting())
	}
}
