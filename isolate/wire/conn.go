package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Conn sends and receives messages over a SOCK_SEQPACKET socket. Send may be called from several goroutines
// concurrently, Receive from one at a time. It does not use package net, whose initialization takes a tenth of a short
// command's run time.
type Conn struct {
	// Patience is the timeout of each Send; 0 is none. Set it before the first Send.
	Patience time.Duration
	// Guard, if set, receives the next message in place of this process if that has descriptors: closing, polling or
	// inheriting a descriptor of a hostile client may block forever. It is passed the socket and the first bytes of the
	// message. Set it before the first Receive.
	Guard func(socket int, head []byte) ([]byte, []*os.File, error)

	// Prompt is how long Receive waits for a message on its own thread before it leaves the wait to the runtime's poller, whose wake-up
	// takes longer; 0 is not at all. It is for answers that usually come at once: each such Receive takes a thread meanwhile, so their
	// number must be bounded. A deadline may be exceeded by Prompt. Set it before the first Receive.
	Prompt time.Duration

	file *os.File
	raw  syscall.RawConn

	in      incoming
	receive func(fd uintptr) bool // in.receive
	soon    func(fd uintptr) bool // c.receiveSoon

	mu   sync.Mutex            // serializes Sends: one that waits for buffer space keeps its turn
	out  outgoing              // guarded by mu
	send func(fd uintptr) bool // c.trySend
}

// incoming is the last received message.
type incoming struct {
	buffer, control []byte
	n, cn, flags    int
	err             error
}

// outgoing is the message being sent.
type outgoing struct {
	message, rights []byte
	waits           bool // the socket's buffer was full, and Patience bounds the wait
	err             error
}

// NewConn makes a Conn of file, one end of a SOCK_SEQPACKET socket. It closes file, also on error.
func NewConn(file *os.File) (*Conn, error) {
	defer file.Close()
	kind, err := unix.GetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("descriptor %q is not a SOCK_SEQPACKET socket", file.Name())
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return open(fd, MaxMessage)
}

// open makes a Conn, which takes over the socket fd, for messages of at limit limit bytes.
func open(fd, limit int) (*Conn, error) {
	// Non-blocking, for the runtime's poller. A socket has no other flag that fcntl(2) sets.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_RDWR|unix.O_NONBLOCK); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("fcntl: %w", err)
	}
	c := &Conn{
		file: os.NewFile(uintptr(fd), "socket"),
		in:   incoming{buffer: make([]byte, limit), control: make([]byte, unix.CmsgSpace(MaxDescriptors*4))},
	}
	c.receive, c.soon, c.send = c.in.receive, c.receiveSoon, c.trySend // made once: each is an allocation
	var err error
	c.raw, err = c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		return nil, err
	}
	return c, nil
}

// Dial connects to the socket at path.
func Dial(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	for {
		// connect(2) blocks only while the listener's backlog is full; that is short, and no other goroutine uses this
		// thread.
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return open(fd, MaxMessage)
}

// Pair returns a connected pair: a Conn for this process, and a file to pass to another one.
func Pair() (*Conn, *os.File, error) { return PairFor(MaxMessage) }

// PairFor is like Pair with a Conn that receives messages of at most limit bytes; longer ones are ErrMalformed. It saves
// memory where many connections wait for small messages.
func PairFor(limit int) (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "supervisor socket")
	ours, err := open(fds[0], limit)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// Send sends one message with files, which the caller still owns.
func (c *Conn) Send(message []byte, files ...*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return c.SendDescriptors(message, fds...)
}

// SendDescriptors is like Send for descriptors without an os.File, or whose file must stay with the runtime's poller.
func (c *Conn) SendDescriptors(message []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = outgoing{message: message, rights: rights}
	err := c.raw.Write(c.send)
	if c.out.waits {
		_ = c.file.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		err = c.out.err
	}
	c.out = outgoing{}
	return err
}

// trySend returns false if the socket's buffer is full. It sets the timer only then.
func (c *Conn) trySend(fd uintptr) bool {
	for c.out.err = unix.EINTR; errors.Is(c.out.err, unix.EINTR); {
		c.out.err = unix.Sendmsg(int(fd), c.out.message, c.out.rights, nil, unix.MSG_NOSIGNAL)
	}
	if !errors.Is(c.out.err, unix.EAGAIN) {
		return true
	}
	if c.Patience > 0 && !c.out.waits {
		c.out.waits = true
		_ = c.file.SetWriteDeadline(time.Now().Add(c.Patience))
	}
	return false
}

// Receive returns the next message, valid until the next call, and the descriptors that came with it, which the caller
// must close. It returns io.EOF when the other side has closed, and ErrMalformed for a message or descriptors that exceed
// the maximum.
func (c *Conn) Receive() ([]byte, []*os.File, error) {
	if c.Guard != nil {
		switch head, some, err := c.peek(); {
		case err != nil:
			return nil, nil, err
		case some:
			return c.guarded(head)
		}
	}
	receive := c.receive
	if c.Prompt > 0 {
		receive = c.soon
	}
	if err := c.raw.Read(receive); err != nil {
		return nil, nil, err
	}
	return c.received()
}

// receiveSoon is in.receive for a message that will come within c.Prompt. It returns false if it has not.
func (c *Conn) receiveSoon(fd uintptr) bool {
	if c.in.receive(fd) {
		return true
	}
	timeout := unix.NsecToTimespec(int64(c.Prompt))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil)
	return err == nil && n > 0 && c.in.receive(fd)
}

// Poll returns the next message like Receive, without waiting: nil if there is none yet. It closes any descriptors that
// came with it, and ignores deadlines and the Guard.
func (c *Conn) Poll() ([]byte, error) {
	some := false
	if err := c.raw.Control(func(fd uintptr) { some = c.in.receive(fd) }); err != nil || !some {
		return nil, err
	}
	message, files, err := c.received()
	CloseAll(files)
	return message, err
}

// received validates and returns the message that in.receive stored.
func (c *Conn) received() ([]byte, []*os.File, error) {
	in := &c.in
	if in.err != nil {
		return nil, nil, in.err
	}
	files, err := takeRights(in.control[:in.cn])
	switch {
	case err != nil:
	case in.flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = ErrMalformed
	case in.n == 0 && in.cn == 0:
		err = io.EOF
	}
	if err != nil {
		CloseAll(files)
		return nil, nil, err
	}
	return in.buffer[:in.n], files, nil
}

// peek waits for the next message and returns its first bytes and whether it has descriptors. It receives neither.
func (c *Conn) peek() (head []byte, some bool, err error) {
	head = make([]byte, headerSize)
	var n, flags int
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); {
			n, _, flags, _, failed = unix.Recvmsg(int(fd), head, nil, unix.MSG_PEEK)
		}
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err = cmp.Or(err, failed); err != nil {
		return nil, false, err
	}
	return head[:n], flags&unix.MSG_CTRUNC != 0, nil
}

// guarded receives the next message through the Guard.
func (c *Conn) guarded(head []byte) (message []byte, files []*os.File, err error) {
	failed := c.raw.Control(func(fd uintptr) { message, files, err = c.Guard(int(fd), head) })
	return message, files, cmp.Or(err, failed)
}

// Hand calls f with the socket, which stays open until f returns.
func (c *Conn) Hand(f func(socket int) error) error {
	var err error
	failed := c.raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return cmp.Or(err, failed)
}

// Shutdown ends the connection for both sides. Messages already in the receive queue can still be received.
func (c *Conn) Shutdown() {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// Unread reports whether a message is waiting to be received.
func (c *Conn) Unread() bool {
	some := false
	err := c.raw.Control(func(fd uintptr) {
		n, _, flags, _, err := unix.Recvmsg(int(fd), make([]byte, 1), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		some = err == nil && (n > 0 || flags&unix.MSG_CTRUNC != 0)
	})
	return some && err == nil
}

// receive returns false if there is no message.
func (in *incoming) receive(fd uintptr) bool {
	for in.err = unix.EINTR; errors.Is(in.err, unix.EINTR); {
		in.n, in.cn, in.flags, _, in.err = unix.Recvmsg(int(fd), in.buffer, in.control, unix.MSG_CMSG_CLOEXEC)
	}
	return !errors.Is(in.err, unix.EAGAIN)
}

// takeRights returns the descriptors of a control message. The caller closes them, also those returned with an error.
func takeRights(control []byte) ([]*os.File, error) {
	var files []*os.File
	for len(control) > 0 {
		head, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil || head.Level != unix.SOL_SOCKET || head.Type != unix.SCM_RIGHTS || len(data)%4 != 0 {
			return files, ErrMalformed
		}
		if files == nil {
			files = make([]*os.File, 0, len(data)/4)
		}
		for ; len(data) > 0; data = data[4:] {
			files = append(files, os.NewFile(uintptr(binary.NativeEndian.Uint32(data)), "passed descriptor"))
		}
		control = rest
	}
	return files, nil
}

// Peer returns the credentials of the process that connected, as recorded by the kernel (SO_PEERCRED, unix(7)).
func (c *Conn) Peer() (*unix.Ucred, error) {
	var cred *unix.Ucred
	var inner error
	err := c.raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, inner)
}

// maxGroups is the maximum number of supplementary groups of a peer.
const maxGroups = 4096

// PeerGroups returns the supplementary groups that the peer process had when it connected (SO_PEERGROUPS, unix(7)). For a
// process in more than 4,096 groups it returns none.
func (c *Conn) PeerGroups() ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(4 * len(groups))
		var errno syscall.Errno
		err := c.raw.Control(func(fd uintptr) {
			_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		})
		switch {
		case err != nil:
			return nil, err
		case errno == 0:
			return slices.Clip(slices.Clone(groups[:size/4])), nil
		case errno != unix.ERANGE: // ERANGE has set size to the size needed
			return nil, fmt.Errorf("getsockopt SO_PEERGROUPS: %w", errno)
		case size > 4*maxGroups:
			return nil, nil
		}
		groups = make([]uint32, size/4)
	}
}

// Ended reports, without waiting, whether Receive would return an error: either side has closed the connection.
func (c *Conn) Ended() bool {
	ended := false
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err == nil && n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return ended || err != nil
}

// SetDeadline sets the time at which Receive and Send fail; the zero time means never.
func (c *Conn) SetDeadline(t time.Time) { _ = c.file.SetDeadline(t) }

// CloseRead makes Receive return io.EOF, as if the other side had closed; Send still works.
func (c *Conn) CloseRead() {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
}

// Close closes the connection; a concurrent Receive returns os.ErrClosed.
func (c *Conn) Close() error { return c.file.Close() }

// CloseAll closes files and skips nil ones.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
