package egress

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"corral/egress/control"
)

// A line is the control socket. Its calls block their one thread: package net would need more system calls.
type line struct {
	fd              int
	buffer, control []byte
}

// newLine takes over a socket.
func newLine(socket *os.File) (*line, error) {
	defer socket.Close()
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l := &line{fd: fd, buffer: make([]byte, control.MaxMessage+1), control: make([]byte, unix.CmsgSpace(4*control.OpenDescriptors))}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil || kind != unix.SOCK_SEQPACKET {
		l.close()
		return nil, errors.Join(errors.New("the control socket is not a SOCK_SEQPACKET socket"), err)
	}
	return l, nil
}

func (l *line) close() { unix.Close(l.fd) }

// receive returns the next message, valid until the next call, and its descriptors, which the caller must close. It returns
// io.EOF if the supervisor has closed.
func (l *line) receive() ([]byte, []*os.File, error) {
	for {
		n, cn, flags, _, err := unix.Recvmsg(l.fd, l.buffer, l.control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("control socket: %w", err)
		}
		files, err := descriptors(l.control[:cn])
		switch {
		case err != nil:
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			err = fmt.Errorf("%w: it exceeds the maximum", control.ErrMalformed)
		case n == 0 && cn == 0:
			err = io.EOF
		}
		if err != nil {
			closeAll(files)
			return nil, nil, err
		}
		return l.buffer[:n], files, nil
	}
}

// descriptors returns those of a control message. The caller closes them, also those returned with an error.
func descriptors(b []byte) ([]*os.File, error) {
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrMalformed, err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("%w: %w", control.ErrMalformed, err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed descriptor"))
		}
	}
	return files, nil
}

// send sends a reply. It uses sendto(2): the program may not call sendmsg(2), which could pass descriptors on.
func (l *line) send(r control.Reply) error {
	message := r.Encode()
	for {
		err := unix.Sendto(l.fd, message, unix.MSG_NOSIGNAL, nil)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return fmt.Errorf("control socket: %w", err)
			}
			return nil
		}
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
