package client

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Output creates a pipe for one of a job's outputs: read is for this process, write for the job. The caller closes both.
// A job needs a pipe that blocks (pipe(7)), so, unlike os.Pipe, this keeps the write end out of the runtime's poller.
func Output() (read, write *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	write = os.NewFile(uintptr(p[1]), "|1")
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_RDONLY|unix.O_NONBLOCK); err != nil {
		unix.Close(p[0])
		write.Close()
		return nil, nil, fmt.Errorf("fcntl: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "|0"), write, nil
}
