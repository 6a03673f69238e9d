package inside

import (
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run is the jail's init: process 1 of the jail's PID namespace, root in the jail's user namespace. On request of the
// supervisor it creates an overlay mount or starts a stub in fresh namespaces. It ends when the supervisor does, which
// ends every process of the jail. It reads nothing but the supervisor's requests.
//
// args are the program's arguments, as InitArgs encodes them.
//
// Descriptor 3 must be the supervisor's socket, 4 the stub's program. Run returns nil when the socket closes, and an
// error if one of its preparations or the protocol fails.
func Run(args []string) error {
	if os.Getpid() != 1 {
		return errors.New("corral-init is process 1 of a jail and is started by corrald; it is not meant to be run by hand")
	}
	skip, below, err := readInitArgs(args)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	// Each user can have as many user namespaces below the jail's as jobs (user_namespaces(7)): see own_ids of the stub, which forbids
	// further ones in those. So namespaces forbid what the job's filter forbids.
	if !Skips(skip, NoUserNamespaces) {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte(below), 0); err != nil {
			return err
		}
	}
	socket, err := net.FileConn(os.NewFile(controlFD, "supervisor"))
	if err != nil {
		return err
	}
	// The kernel reaps the stubs, and any other process that becomes a child of process 1 (sigaction(2), SIG_IGN): their
	// exit status is not needed.
	signal.Ignore(unix.SIGCHLD)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	supervisor, namespaces := socket.(*net.UnixConn), slotNamespaces(skip)
	buffer, control := make([]byte, requestSize+1), make([]byte, unix.CmsgSpace(2*4))
	for {
		n, cn, _, _, err := supervisor.ReadMsgUnix(buffer, control)
		if err == nil {
			err = answer(supervisor, buffer[:n], control[:cn], int(null.Fd()), namespaces)
		}
		if ended(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ended reports whether err means that the supervisor's end of the socket is closed: between messages, while an answer
// was being sent, or with an unread answer.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// answer executes one request and sends the result.
func answer(supervisor *net.UnixConn, request, control []byte, null int, namespaces uintptr) error {
	number, what, err := ReadRequest(request)
	if err != nil {
		return err
	}
	fds, err := rights(control)
	if err != nil {
		return err
	}
	defer closeAll(fds)
	fd, err := -1, error(unix.ENOSYS)
	operation, port := what&(1<<portShift-1), int(what>>portShift)
	switch operation {
	case AskSlot:
		fd, err = startStub(fds, null, namespaces)
	case AskNetSlot:
		fd, err = startStub(fds, null, namespaces&^unix.CLONE_NEWNET)
	case AskOverlay:
		fd, err = overlay(fds)
	case AskConnect4:
		fd, err = connect(unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	case AskConnect6:
		fd, err = connect(unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}})
	case AskSockets:
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	}
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = unix.EIO
		}
		_, _, err = supervisor.WriteMsgUnix(AppendRequest(number, uint32(errno)), nil, nil)
		return err
	}
	_, _, err = supervisor.WriteMsgUnix(AppendRequest(number, 0), unix.UnixRights(fd), nil)
	unix.Close(fd)
	if err == nil && (operation == AskConnect4 || operation == AskConnect6) {
		_, _, err = supervisor.WriteMsgUnix(AppendRequest(number, 0), nil, nil)
	}
	return err
}

// connect begins a TCP connection in the init's network namespace. It does not wait: a server that accepts nothing must
// not keep the init from its next request.
func connect(family int, to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// InitArgs returns the arguments of the jail's init for a set of Measures to leave out, see Prepare.Skip, and the maximum number of user
// namespaces of one of the jail's users.
func InitArgs(skip uint64, below int) []string {
	return []string{strconv.FormatUint(skip, 16), strconv.Itoa(below)}
}

func readInitArgs(args []string) (skip uint64, below string, err error) {
	if len(args) != 2 {
		return 0, "", errors.New("corral-init is started with two arguments")
	}
	skip, err = strconv.ParseUint(args[0], 16, 64)
	return skip, args[1], err
}

// slotNamespaces returns the flags of clone(2) for the namespaces of a slot, without those that skip leaves out.
func slotNamespaces(skip uint64) (flags uintptr) {
	for name, flag := range map[string]uintptr{
		MountNamespace: unix.CLONE_NEWNS, PIDNamespace: unix.CLONE_NEWPID, NetworkNamespace: unix.CLONE_NEWNET,
		IPCNamespace: unix.CLONE_NEWIPC, UTSNamespace: unix.CLONE_NEWUTS,
	} {
		if !Skips(skip, name) {
			flags |= flag
		}
	}
	return flags
}

// startStub forks the stub into fresh namespaces, in the cgroup fds[1] if it is given, with fds[0] as its socket. It
// returns a pidfd. The clone itself creates the namespaces and joins the cgroup (CLONE_INTO_CGROUP): no instruction of
// the stub runs outside them. The stub creates its cgroup namespace itself: one created by the clone would be rooted at
// the parent's cgroup.
func startStub(fds []int, null int, namespaces uintptr) (int, error) {
	if len(fds) == 0 {
		return -1, unix.EBADF
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(fds[0])},
		Env:   []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags: namespaces,
			PidFD:      &pidfd,
		},
	}
	if len(fds) > 1 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fds[1]
	}
	_, err := syscall.ForkExec("/proc/self/fd/4", []string{"job"}, attr)
	if err != nil {
		return -1, err
	}
	return pidfd, nil
}

func rights(control []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
