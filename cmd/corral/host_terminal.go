package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/job"
)

// errNoTerminal means that standard input, or the file used instead, is not a terminal.
var errNoTerminal = errors.New("standard input is not a terminal")

// The size of a VT100, used for terminals without a known size, such as serial lines.
const (
	defaultRows = 24
	defaultCols = 80
)

// A hostTerminal is the terminal of this process. Joined to that of a job, keys go to the job, the job's output is shown here, and both
// terminals have the same size.
//
// Meanwhile the terminal of this process is raw (cfmakeraw(3)), so that every key goes to the job, including Ctrl-C, which
// the line discipline of the job's own terminal turns into a signal. The original settings are restored in every case:
//
//	the job's end, an error, a refusal   the caller defers Restore
//	a signal that ends this process      its handler calls Restore first
//	a panic                              deferred calls run; its goroutines restore before they panic
//	SIGTSTP                              Join restores, stops this process, and makes the terminal raw after SIGCONT
//	SIGKILL                              not possible: run stty sane(1)
type hostTerminal struct {
	in, out *os.File
	before  unix.Termios

	mu    sync.Mutex
	isRaw bool     // guarded by mu
	over  bool     // guarded by mu: Restore was called, so the settings no longer change
	told  job.Size // guarded by mu: the last size given to the job's terminal
}

// hostTerminalOf returns a hostTerminal for in; the job's output goes to out, which may be any file. The caller keeps both files.
// The error is errNoTerminal if in is not a terminal.
func hostTerminalOf(in, out *os.File) (*hostTerminal, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, errNoTerminal
	}
	return &hostTerminal{in: in, out: out, before: *before}, nil
}

// Size returns the current size of the terminal.
func (t *hostTerminal) Size() job.Size {
	ws, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 || ws.Col == 0 {
		return job.Size{Rows: defaultRows, Cols: defaultCols}
	}
	return job.Size{Rows: ws.Row, Cols: ws.Col}
}

// Raw makes the terminal raw. In the background it stops this process until that is in the foreground (tcsetattr(3)).
// After Restore it does nothing.
func (t *hostTerminal) Raw() error {
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

// Restore restores the terminal's settings; Raw has no effect afterwards. It may be called by any goroutine, and more than
// once.
func (t *hostTerminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.restore()
}

// pause restores the terminal's settings until the next Raw.
func (t *hostTerminal) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restore()
}

func (t *hostTerminal) restore() {
	if !t.isRaw || t.background() {
		return
	}
	t.isRaw = false
	_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &t.before)
}

// lose records that another process has changed the terminal's settings.
func (t *hostTerminal) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isRaw = false
}

// isSettled reports whether the terminal is raw, as far as is known, or Restore was called.
func (t *hostTerminal) isSettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isRaw || t.over
}

// background reports whether this process is in the background of its shell. The shell has then restored the terminal's
// settings already, and changing them would stop this process.
func (t *hostTerminal) background() bool {
	group, err := unix.IoctlGetInt(int(t.in.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// guard is deferred by goroutines: a panic in one ends the process without running main's deferred calls.
func (t *hostTerminal) guard() {
	if p := recover(); p != nil {
		t.Restore()
		panic(p)
	}
}
