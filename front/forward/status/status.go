// Package status is the small file in which corral audit forward says how far it is, for /metrics of corral serve.
package status

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// File is where the service of corral audit forward keeps it: everybody may read it, and it has only numbers.
const File = "/run/corral/audit-export"

// Size is the size of the file in bytes.
const Size = 256

// A Status is how far a forwarder is. Counts begin with the process.
type Status struct {
	Seq      uint64 // of the last record that the receiver has
	Sent     uint64 // records and notices of gaps
	Dropped  uint64 // records that were removed before they were sent, or that the receiver does not accept
	Failures uint64 // attempts that failed
	Pending  int64  // when the oldest record was written that failed to be sent, in seconds since 1970; 0: none
	Ended    int    // 1 after the process has ended
	Running  bool   // it runs: also false after it was killed; not written, see Hold
}

const form = "corral-audit-export 1 seq=%d sent=%d dropped=%d failures=%d pending=%d ended=%d\n"

func (s Status) text() string {
	return fmt.Sprintf(form, s.Seq, s.Sent, s.Dropped, s.Failures, s.Pending, s.Ended)
}

// Write replaces the content of the file, by one write.
func (s Status) Write(to io.WriterAt) error {
	text := s.text()
	_, err := to.WriteAt([]byte(text+strings.Repeat(" ", Size-len(text))), 0)
	return err
}

// Hold says to readers that a process with the file open for writing runs, until the last one has closed it or ended, in whatever way.
// That is a write lock (fcntl(2), open file description locks): other users, who may read the file alone, cannot take it in its place. An
// error means that one of them has a lock for reading: then it looks as if no process ran.
func Hold(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// held reports whether a process holds the file.
func held(f *os.File) bool {
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock) == nil && lock.Type == unix.F_WRLCK
}

// Read reads a file that Write has written. It returns false if there is none.
func Read(path string) (Status, bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Status{}, false
	}
	defer f.Close()
	b := make([]byte, Size)
	if _, err := io.ReadFull(f, b); err != nil {
		return Status{}, false
	}
	var s Status
	text := strings.TrimRight(string(b), " ")
	_, err = fmt.Sscanf(text, form, &s.Seq, &s.Sent, &s.Dropped, &s.Failures, &s.Pending, &s.Ended)
	s.Running = s.Ended == 0 && held(f)
	return s, err == nil && s.text() == text
}
