package main

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

func modes(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

func TestOpen(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if _, err := hostTerminalOf(read, write); !errors.Is(err, errNoTerminal) {
		t.Errorf("a pipe: %v", err)
	}
	_, slave := sandboxtest.Terminal(t)
	if _, err := hostTerminalOf(slave, write); err != nil {
		t.Errorf("a terminal: %v", err)
	}
}

func TestSize(t *testing.T) {
	master, slave := sandboxtest.Terminal(t)
	term, err := hostTerminalOf(slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ rows, cols, wantRows, wantCols uint16 }{
		{0, 0, 24, 80}, {0, 80, 24, 80}, {10, 0, 24, 80}, {1, 1, 1, 1}, {65535, 65535, 65535, 65535},
	} {
		ws := &unix.Winsize{Row: tt.rows, Col: tt.cols}
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, ws); err != nil {
			t.Fatal(err)
		}
		if got, want := term.Size(), (job.Size{Rows: tt.wantRows, Cols: tt.wantCols}); got != want {
			t.Errorf("%d rows of %d: %+v, want %+v", tt.rows, tt.cols, got, want)
		}
	}
}

func TestRestore(t *testing.T) {
	_, slave := sandboxtest.Terminal(t)
	before := modes(t, slave)
	for _, tt := range []struct {
		name    string
		leave   func(*hostTerminal)
		forGood bool
	}{
		{"pause", (*hostTerminal).pause, false},
		{"restore", (*hostTerminal).Restore, true},
		{"restore twice", func(term *hostTerminal) { term.Restore(); term.Restore() }, true},
		{"panic", func(term *hostTerminal) {
			defer func() {
				if p := recover(); p != "a bug" {
					t.Errorf("recovered %v", p)
				}
			}()
			defer term.guard()
			panic("a bug")
		}, true},
	} {
		term, err := hostTerminalOf(slave, slave)
		if err == nil {
			err = term.Raw()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := modes(t, slave); got.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 || got.Oflag&unix.OPOST != 0 {
			t.Errorf("%s: not raw: %+v", tt.name, got)
		}
		tt.leave(term)
		if got := modes(t, slave); got != before {
			t.Errorf("%s: left as %+v, it was %+v", tt.name, got, before)
		}
		if err := term.Raw(); err != nil {
			t.Fatal(err)
		}
		if isRaw := modes(t, slave) != before; isRaw == tt.forGood {
			t.Errorf("%s: raw afterwards: %v", tt.name, isRaw)
		}
		term.Restore()
	}
}

// A far is a simulated terminal of a job.
type far struct {
	io.Reader
	typed  io.Writer
	sizes  chan job.Size
	closed chan struct{}
}

func (f far) Write(b []byte) (int, error) { return f.typed.Write(b) }
func (f far) Close() error                { close(f.closed); return nil }
func (f far) Resize(s job.Size) error     { f.sizes <- s; return nil }

// TestJoin: Join copies bytes and sizes, and returns when the job's output ends or cannot be written.
func TestJoin(t *testing.T) {
	master, slave := sandboxtest.Terminal(t)
	show, shown, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	term, err := hostTerminalOf(slave, shown)
	if err == nil {
		err = term.Raw()
	}
	if err != nil {
		t.Fatal(err)
	}
	output, job1 := io.Pipe()
	keys, typed := io.Pipe()
	f := far{Reader: output, typed: typed, sizes: make(chan job.Size, 8), closed: make(chan struct{})}
	joined := make(chan error, 1)
	go func() { joined <- term.Join(f) }()
	if got := <-f.sizes; got != (job.Size{Rows: 24, Cols: 80}) {
		t.Errorf("the first size is %+v", got)
	}
	if _, err := master.WriteString("\x03k"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2)
	if _, err := io.ReadFull(keys, got); string(got) != "\x03k" {
		t.Errorf("typed %q (%v)", got, err)
	}
	if _, err := job1.Write([]byte("said")); err != nil {
		t.Fatal(err)
	}
	got = make([]byte, 4)
	if _, err := io.ReadFull(show, got); string(got) != "said" {
		t.Errorf("shown %q (%v)", got, err)
	}
	// It is no process's controlling terminal, so there is no SIGWINCH: the next key transmits the size.
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 90}); err != nil {
		t.Fatal(err)
	}
	if _, err := master.WriteString("k"); err != nil {
		t.Fatal(err)
	}
	if got := <-f.sizes; got != (job.Size{Rows: 30, Cols: 90}) {
		t.Errorf("the next size is %+v", got)
	}
	if _, err := io.ReadFull(keys, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	// After several signals, the size is transmitted once.
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 31, Col: 91}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-f.sizes; got != (job.Size{Rows: 31, Cols: 91}) {
		t.Errorf("the last size is %+v", got)
	}
	show.Close()
	if _, err := job1.Write([]byte("unheard")); err != nil {
		t.Fatal(err)
	}
	if err := <-joined; !errors.Is(err, unix.EPIPE) {
		t.Errorf("nobody reads it: %v", err)
	}
	<-f.closed
	if len(f.sizes) > 0 {
		t.Errorf("told again: %+v", <-f.sizes)
	}
	term.Restore()
}
