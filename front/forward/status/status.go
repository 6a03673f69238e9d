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
	return s, err == nil && s.text() == text
}
