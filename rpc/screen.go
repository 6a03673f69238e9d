package rpc

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/job"
)

// A screen is the terminal of a process, seen from its client.
type screen struct {
	mu     sync.Mutex
	master *os.File // guarded by mu; nil before there is one, and when the process has ended
	size   job.Size // guarded by mu: what is wanted of a terminal that is not there yet; zero is nothing
}

// open takes a master over.
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

// resize has the programs on it told of a new size (SIGWINCH).
func (s *screen) resize(size job.Size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	if s.master != nil {
		s.set()
	}
}

// set is for one who holds the lock.
func (s *screen) set() {
	size := s.size
	control(s.master, func(fd int) {
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

// hangUp types the character that ends the input of who reads the terminal line by line (termios(3), VEOF): twice within
// a line, where the first one only passes the line on. Programs that read keys get a key.
func hangUp(master *os.File, midLine bool) {
	var eof byte
	control(master, func(fd int) {
		if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			eof, midLine = t.Cc[unix.VEOF], midLine && t.Lflag&unix.ICANON != 0
		}
	})
	keys := []byte{eof, eof}
	switch {
	case eof == 0: // it is switched off
		return
	case !midLine:
		keys = keys[:1]
	}
	_, _ = master.Write(keys) // of a process that has ended, nobody reads it
}

// pollable makes a file one whose reads and writes can be interrupted. It takes it over.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := -1, error(nil)
	control(f, func(from int) {
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

// control calls f with the descriptor of a file, unless that is closed.
func control(file *os.File, f func(fd int)) {
	if c, err := file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}
