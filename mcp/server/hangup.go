package server

import (
	"context"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hangupEvery is the interval at which an output is checked for a reader.
const hangupEvery = 100 * time.Millisecond

// hungUp returns a channel that is closed when nobody can read out any more: the reading end of a pipe, or the other end of a
// socket, was closed. For other kinds of output the channel is never closed. The check ends with ctx.
func hungUp(ctx context.Context, out io.Writer) <-chan struct{} {
	gone := make(chan struct{})
	file, ok := out.(syscall.Conn)
	if !ok {
		return gone
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return gone
	}
	go func() {
		tick := time.NewTicker(hangupEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if closed(raw) {
					close(gone)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return gone
}

// closed reports POLLERR or POLLHUP of poll(2), which need not be requested.
func closed(raw syscall.RawConn) bool {
	var is bool
	err := raw.Control(func(fd uintptr) {
		list := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(list, 0)
		is = err == nil && n == 1 && list[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err != nil || is
}
