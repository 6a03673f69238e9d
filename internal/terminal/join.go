package terminal

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// A Far is a job's terminal. Reading ends, with any error, when the job has: what it wrote is read before.
type Far interface {
	io.ReadWriteCloser
	Resize(job.Size) error
}

// Master is the Far of a terminal whose master is here. It takes the file over. ended is closed when the job has ended: then
// what the terminal holds is read, and nothing is waited for. A process that is not of the job may have been given the
// terminal, and keep it open.
func Master(f *os.File, ended <-chan struct{}) (Far, error) {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	// The runtime's poller, which ends a read at a deadline, is told of descriptors that do not block when they are made files.
	fd := -1
	failure := raw.Control(func(from uintptr) {
		if fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err = errors.Join(failure, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, os.NewSyscallError("fcntl", err)
	}
	m := &master{File: os.NewFile(uintptr(fd), f.Name()), closed: make(chan struct{}), left: maxHeld}
	go func() {
		select {
		case <-ended:
			_ = m.SetReadDeadline(time.Unix(1, 0)) // an error is of a file that is closed
		case <-m.closed:
		}
	}()
	return m, nil
}

type master struct {
	*os.File
	once   sync.Once
	closed chan struct{}
	left   int // bytes to be read after the end, of who reads
}

// maxHeld is more than a terminal holds of what was written to it (64 KiB, see tty_buffer.c).
const maxHeld = 1 << 20

// Read implements io.Reader. After the job's end it does not wait, and its error is io.EOF when there is nothing to read.
func (m *master) Read(b []byte) (int, error) {
	n, err := m.File.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, err := m.SyscallConn()
	if err != nil {
		return 0, err
	}
	n = 0
	failure := raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), b[:min(len(b), m.left)]); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if failure != nil || err != nil || n <= 0 {
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

// Resize sets the terminal's size; the kernel tells the programs on it. A closed one has none.
func (m *master) Resize(s job.Size) error {
	raw, err := m.SyscallConn()
	if err != nil {
		return err
	}
	failure := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
	if failure != nil {
		return failure
	}
	return err
}

// Join carries keys, output and sizes between the two terminals until what the job writes has ended, or cannot be shown,
// which is the error; then it closes far. While it runs, a write to a closed pipe is such an error (EPIPE) and not the end
// of this process, which would leave the terminal raw.
func (t *Terminal) Join(far Far) error {
	defer far.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGCONT)
	if !signal.Ignored(unix.SIGTSTP) { // by a shell without job control: nobody would continue it
		signal.Notify(signals, unix.SIGTSTP)
	}
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	stop, stopped, err := os.Pipe()
	if err != nil {
		return err
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		defer t.guard()
		t.watch(far, signals, ended)
	}()
	go func() { // a write that waits for the job to read ends with it, and with far
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

// patience, in milliseconds, is how long pass does not look at keys that are not for this process.
const patience = 100

// pass passes keys to the job until the other end of stop is closed. What is typed after that is left for who reads the
// terminal next.
func (t *Terminal) pass(far Far, stop *os.File) {
	buffer := make([]byte, 4<<10)
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return
		}
		// What is typed is the shell's, and reading it would stop this process, which may have been told to end.
		if t.background() {
			_, _ = unix.Poll(fds[1:], patience)
			continue
		}
		t.regain(far) // a shell need not say that this process is in the foreground again
		t.fit(far)    // a key that was pressed after the size changed is not to overtake that
		n, err := t.in.Read(buffer)
		if err == nil {
			_, err = far.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// show passes on what the job writes until its end, or the first error of that.
func (t *Terminal) show(far io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := far.Read(buffer)
		if n > 0 {
			if _, err := t.out.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // for a master EIO: nobody has the terminal open any more
		}
	}
}

// watch does what signals ask for.
func (t *Terminal) watch(far Far, signals <-chan os.Signal, ended <-chan struct{}) {
	t.fit(far) // it may have changed since the job was asked for
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
			// Not SIGTSTP, which an orphaned process group ignores: that SIGCONT follows is to be certain.
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		case unix.SIGCONT:
			t.lose() // whoever stopped it, SIGSTOP included: a shell has used the terminal meanwhile
			t.regain(far)
		}
	}
}

// fit gives the job's terminal the size of ours, if that is another than the last.
func (t *Terminal) fit(far Far) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if size := t.Size(); size != t.told {
		t.told = size
		_ = far.Resize(size)
	}
}

// regain makes the terminal raw again, if it is not and is ours to use.
func (t *Terminal) regain(far Far) {
	if t.has() || t.background() {
		return
	}
	_ = t.Raw()
	t.redraw(far)
}

// shownElsewhere is how long a program has to see that its terminal has another size.
const shownElsewhere = 50 * time.Millisecond

// redraw has the job's program draw its screen again. Nobody stopped it, and so it does not know that the screen has
// something else on it. Many programs draw only when the size is another than they know, hence the other size stays for a
// moment.
func (t *Terminal) redraw(far Far) {
	other := t.Size()
	other.Rows = max(other.Rows^1, 2)
	_ = far.Resize(other)
	time.AfterFunc(shownElsewhere, func() { _ = far.Resize(t.Size()) })
}
