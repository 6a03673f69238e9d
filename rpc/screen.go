package rpc

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/internal/pipe"
	"corral/job"
)

// A screen is the client's view of the terminal of a process.
type screen struct {
	mu     sync.Mutex
	master *os.File // guarded by mu; nil before the terminal is open and after the process has ended
	size   job.Size // guarded by mu: requested size, set once the terminal is open; zero if none was requested
}

// open takes ownership of master. It returns a file whose reads and writes can be interrupted.
func (s *screen) open(master *os.File) (*os.File, error) {
	file, err := pollable(master)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = file
	if s.size != (job.Size{}) {
		s.set()
	}
	return file, nil
}

// resize sets the terminal's size. The kernel sends SIGWINCH to its foreground process group.
func (s *screen) resize(size job.Size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	if s.master != nil {
		s.set()
	}
}

// set sets the terminal's size. The caller holds s.mu.
func (s *screen) set() {
	size := s.size
	pipe.Control(s.master, func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

func (s *screen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master != nil {
		s.master.Close()
		s.master = nil
	}
}

// sendEOF types the end-of-file character (VEOF, termios(3)), which ends the input of a program that reads line by line.
// In the middle of a line it is typed twice, since the first one only submits the line. A program in raw mode reads it as
// a key.
func sendEOF(master *os.File, midLine bool) {
	var eof byte
	pipe.Control(master, func(fd int) {
		if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			eof, midLine = t.Cc[unix.VEOF], midLine && t.Lflag&unix.ICANON != 0
		}
	})
	keys := []byte{eof, eof}
	switch {
	case eof == 0: // VEOF is disabled
		return
	case !midLine:
		keys = keys[:1]
	}
	_, _ = master.Write(keys) // fails only if the process has ended
}

// pollable returns a duplicate of f whose reads and writes can be interrupted, and closes f.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := -1, error(nil)
	pipe.Control(f, func(from int) {
		if fd, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	})
	if err != nil || fd < 0 {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
