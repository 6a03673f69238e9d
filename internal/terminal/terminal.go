// Package terminal is a person's side of a job's terminal: what is typed at ours is the job's to read, what the job writes
// is shown on ours, and both have one size.
//
// Ours is raw meanwhile (cfmakeraw(3)), so that every key is the job's, Ctrl-C included: it is the line discipline of the
// job's own terminal that makes a signal of it. Whichever way this process goes on, the terminal is as it was before:
//
//	the job's end, an error, a refusal   the caller defers Restore
//	a signal that ends this process      who catches it calls Restore first
//	a panic                              deferred calls run; goroutines of this package restore before they die of one
//	SIGTSTP                              Join restores, stops this process, and is raw again after SIGCONT
//	SIGKILL                              nobody can: stty sane(1)
package terminal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/job"
)

// ErrNone is standard input, or what is in its place, that is no terminal.
var ErrNone = errors.New("standard input is no terminal")

// What a terminal has that does not know its size, a serial line for example: that of a VT100.
const (
	defaultRows = 24
	defaultCols = 80
)

// A Terminal is what a person sits at.
type Terminal struct {
	in, out *os.File
	before  unix.Termios

	mu    sync.Mutex
	isRaw bool     // guarded by mu
	over  bool     // guarded by mu: Restore was called, and it stays as it is
	told  job.Size // guarded by mu: the size that the job's terminal was given last
}

// Open returns the terminal that in is; what a job writes goes to out, which may be anything. Both stay the caller's.
// The error is ErrNone if in is no terminal.
func Open(in, out *os.File) (*Terminal, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, ErrNone
	}
	return &Terminal{in: in, out: out, before: *before}, nil
}

// Size is the terminal's size now.
func (t *Terminal) Size() job.Size {
	ws, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 || ws.Col == 0 {
		return job.Size{Rows: defaultRows, Cols: defaultCols}
	}
	return job.Size{Rows: ws.Row, Cols: ws.Col}
}

// Raw makes the terminal raw. A process in the background is stopped until it is in the foreground (tcsetattr(3)). After
// Restore it does nothing.
func (t *Terminal) Raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	raw := t.before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &raw); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	t.isRaw = true
	return nil
}

// Restore puts the terminal back as it was, for good. It may be called from anywhere, and more than once.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.restore()
}

// pause is Restore until the next Raw.
func (t *Terminal) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restore()
}

func (t *Terminal) restore() {
	if !t.isRaw || t.background() {
		return
	}
	t.isRaw = false
	_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &t.before)
}

// lose says that somebody else has set the terminal.
func (t *Terminal) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isRaw = false
}

// has reports whether the terminal is raw, as far as is known, or was restored for good.
func (t *Terminal) has() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isRaw || t.over
}

// background reports whether the terminal is another job's of the shell that started this process. Then the shell has put
// it right already, and to touch it would stop this process.
func (t *Terminal) background() bool {
	group, err := unix.IoctlGetInt(int(t.in.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// guard is deferred by goroutines: a panic in one ends the process without what main has deferred.
func (t *Terminal) guard() {
	if p := recover(); p != nil {
		t.Restore()
		panic(p)
	}
}
