package server

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// blockingPipe returns a pipe in blocking mode, as a host creates it, which the runtime's poller does not handle.
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

// TestReadyReaderReadsAll: everything written is read, and the pipe stays in blocking mode.
func TestReadyReaderReadsAll(t *testing.T) {
	in, w := blockingPipe(t)
	r, end := whenReady(in)
	defer end()
	if _, ok := r.(*readyReader); !ok {
		t.Fatalf("%T", r)
	}
	text := strings.Repeat("0123456789", 20_000) // more than a pipe buffers
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

// TestReadyReaderCloseEndsWait: closing ends a wait for input.
func TestReadyReaderCloseEndsWait(t *testing.T) {
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

// TestWhenReadyPassesOthers: regular files, pipes in non-blocking mode and other readers are returned unchanged.
func TestWhenReadyPassesOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parked, w, err := os.Pipe() // in non-blocking mode
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
