package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/pipe"
	"corral/job"
)

// A farTerminal is a job's terminal. Read returns an error when the job has ended and all of its output has been read.
type farTerminal interface {
	io.ReadWriteCloser
	// Resize sets the size of the terminal; the job receives SIGWINCH.
	Resize(job.Size) error
}

// openMaster returns the farTerminal of a terminal, given its master, whose ownership it takes. ended is closed when the job has ended:
// from then on, Read returns what the terminal still holds and does not wait, because a process outside the job may keep
// the terminal open.
func openMaster(f *os.File, ended <-chan struct{}) (farTerminal, error) {
	defer f.Close()
	// Deadlines need the runtime's poller, which only takes descriptors that are non-blocking when os.NewFile gets them.
	fd, err := -1, os.ErrClosed
	pipe.Control(f, func(from int) {
		if fd, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, os.NewSyscallError("fcntl", err)
	}
	m := &master{File: os.NewFile(uintptr(fd), f.Name()), closed: make(chan struct{}), left: maxHeld}
	go func() {
		select {
		case <-ended:
			_ = m.SetReadDeadline(time.Unix(1, 0)) // fails only if the file is closed
		case <-m.closed:
		}
	}()
	return m, nil
}

type master struct {
	*os.File
	once   sync.Once
	closed chan struct{}
	left   int // bytes that may still be read after the job's end; used by the reader only
}

// maxHeld is more bytes than a terminal buffers (64 KiB, see tty_buffer.c).
const maxHeld = 1 << 20

// Read implements io.Reader. After the job's end it does not wait, and returns io.EOF if there is nothing to read.
func (m *master) Read(b []byte) (int, error) {
	n, err := m.File.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	n, err = -1, os.ErrClosed
	pipe.Control(m.File, func(fd int) {
		for {
			if n, err = unix.Read(fd, b[:min(len(b), m.left)]); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if err != nil || n <= 0 {
		return 0, io.EOF
	}
	m.left -= n
	return n, nil
}

// Close implements io.Closer.
func (m *master) Close() error {
	m.once.Do(func() { close(m.closed) })
	return m.File.Close()
}

// Resize sets the terminal's size; the kernel sends SIGWINCH to the programs on it. It fails after Close.
func (m *master) Resize(s job.Size) error {
	err := os.ErrClosed
	pipe.Control(m.File, func(fd int) {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
	return err
}

// Join copies keys, output and sizes between the two terminals until the job's output ends or cannot be written, which is
// the error; then it closes far. While it runs, SIGPIPE is caught, so that a write to a closed pipe is an error (EPIPE) and
// does not end this process with the terminal raw.
func (t *hostTerminal) Join(far farTerminal) error {
	defer far.Close()
	stop, stopped, err := os.Pipe()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGCONT)
	if !signal.Ignored(unix.SIGTSTP) { // a shell without job control ignores it, and would never continue this process
		signal.Notify(signals, unix.SIGTSTP)
	}
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		defer t.guard()
		t.watch(far, signals, ended)
	}()
	go func() { // a write that blocks because the job does not read ends when far is closed
		defer stop.Close()
		defer t.guard()
		t.pass(far, stop)
	}()
	err = t.show(far)
	stopped.Close()
	close(ended)
	<-watched
	signal.Stop(signals)
	signal.Stop(broken)
	return err
}

// backgroundPoll is the interval in milliseconds at which pass checks whether a background process is in the foreground.
const backgroundPoll = 100

// pass forwards keys to the job until the other end of stop is closed. Keys typed after that are left for the next reader
// of the terminal.
func (t *hostTerminal) pass(far farTerminal, stop *os.File) {
	buffer := make([]byte, 4<<10)
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return
		}
		// In the background, keys belong to the shell. Reading them would stop this process, even if it was told to end.
		if t.background() {
			_, _ = unix.Poll(fds[1:], backgroundPoll)
			continue
		}
		t.regain(far) // a shell may put this process into the foreground without a signal
		t.fit(far)    // a key pressed after a resize must not arrive before it
		n, err := t.in.Read(buffer)
		if err == nil {
			_, err = far.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// show forwards the job's output until its end or the first write error.
func (t *hostTerminal) show(far io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := far.Read(buffer)
		if n > 0 {
			if _, err := t.out.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // EIO of a master: no process has the terminal open any more
		}
	}
}

// watch handles signals until ended is closed.
func (t *hostTerminal) watch(far farTerminal, signals <-chan os.Signal, ended <-chan struct{}) {
	t.fit(far) // the size may have changed since the job was requested
	for {
		var s os.Signal
		select {
		case s = <-signals:
		case <-ended:
			return
		}
		switch s {
		case unix.SIGWINCH:
			t.fit(far)
		case unix.SIGTSTP:
			t.pause()
			// Not SIGTSTP, which is ignored in an orphaned process group: SIGCONT, which sets the terminal up again, must follow.
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		case unix.SIGCONT:
			t.lose() // after any stop, SIGSTOP included, a shell has used the terminal
			t.regain(far)
		}
	}
}

// fit sets the size of the job's terminal to that of t if it differs from the last one.
func (t *hostTerminal) fit(far farTerminal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size := t.Size(); size != t.told {
		t.told = size
		_ = far.Resize(size)
	}
}

// regain makes the terminal raw again if it is not raw and this process is in the foreground.
func (t *hostTerminal) regain(far farTerminal) {
	if t.isSettled() || t.background() {
		return
	}
	_ = t.Raw()
	t.redraw(far)
}

// otherSizeTime is how long redraw leaves a different size, so that programs notice it.
const otherSizeTime = 50 * time.Millisecond

// redraw makes the job's program draw its screen again. The program was not stopped, so it does not know that the screen
// shows something else. Many programs redraw only if the size differs from the one they know, so redraw sets a different
// size for a moment.
func (t *hostTerminal) redraw(far farTerminal) {
	other := t.Size()
	other.Rows = max(other.Rows^1, 2)
	_ = far.Resize(other)
	time.AfterFunc(otherSizeTime, func() { _ = far.Resize(t.Size()) })
}
