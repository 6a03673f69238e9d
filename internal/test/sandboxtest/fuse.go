package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fuseVar is the environment variable that makes a test binary a file server: "host" or "user".
const fuseVar = "CORRAL_TEST_FILE_SERVER"

// The owner of all files on a file server, and opcodes of FUSE that tests use (fuse(4), linux/fuse.h).
const (
	FuseLookup  = 1
	FuseGetattr = 3
	fuseRead    = 15
	FuseFlush   = 25
)

// A FileServer is a file system in user space (FUSE), served by a process of its own until Stall. It has a directory "dir"
// and a file "file", also as "dir-NAME" and "file-NAME", which the kernel may not cache: each access is a request to the server.
type FileServer struct {
	Dir     string   // the mount point
	Overlay *os.File // with StartFileServerInNamespace: an overlay above it, opened with O_PATH

	process *Command
	control *os.File
}

// ServeFiles runs the file server if this process was started as one; otherwise it returns. TestMain calls it first in
// packages whose tests start a file server.
func ServeFiles() {
	kind := os.Getenv(fuseVar)
	if kind == "" {
		return
	}
	serve := func() error { return serveFiles(kind, os.Args[1]) }
	if kind == "reader" {
		serve = readInto
	}
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "file server: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartFileServer mounts a file system that user uid serves to all users, as with allow_other. The test must require Root
// and Fuse. Only supervisors that are started later see it.
func StartFileServer(t testing.TB, uid int) *FileServer {
	t.Helper()
	return startFileServer(t, "host", uid)
}

// StartFileServerInNamespace is StartFileServer by an unprivileged process, in user and mount namespaces of user uid.
func StartFileServerInNamespace(t testing.TB, uid int) *FileServer {
	t.Helper()
	return startFileServer(t, "user", uid)
}

func startFileServer(t testing.TB, kind string, uid int) *FileServer {
	t.Helper()
	Require(t, Root, Fuse)
	top := OpenDir(t)
	s := &FileServer{Dir: filepath.Join(top, "mnt")}
	// The kernel requires that the device was opened in the user namespace in which the file system is mounted.
	if err := errors.Join(
		unix.Mknod(filepath.Join(top, "fuse"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))),
		os.Chmod(filepath.Join(top, "fuse"), 0o666), os.Chown(top, uid, uid),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mnt", "lower", "merged"} {
		if err := errors.Join(os.Mkdir(filepath.Join(top, name), 0o755), os.Chown(filepath.Join(top, name), uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.control = os.NewFile(uintptr(fds[0]), "control")
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", top)
	cmd.Env = append(os.Environ(), fuseVar+"="+kind, fmt.Sprintf("%s_OWNER=%d", fuseVar, uid))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if kind == "user" {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
		cmd.SysProcAttr.Credential = &syscall.Credential{NoSetGroups: true} // root of the namespace
	}
	s.process = Start(t, cmd)
	t.Cleanup(func() { // before the process is killed, which Start has registered, and the directory removed
		s.End()
		_ = unix.Unmount(s.Dir, unix.MNT_DETACH)
		s.control.Close()
	})
	theirs.Close()
	if word, file := s.await(t); word[0] != 'r' {
		t.Fatalf("the file server replied %q", word)
	} else if s.Overlay = file; file != nil {
		t.Cleanup(func() { file.Close() })
	}
	return s
}

// Stall makes the server read requests without answering them.
func (s *FileServer) Stall(t testing.TB) {
	t.Helper()
	if _, err := s.control.Write([]byte("s")); err != nil {
		t.Fatal(err)
	}
	for {
		if word, _ := s.await(t); word[0] == 's' {
			return
		}
	}
}

// SendFile makes the server open "file" and send a message with its descriptor to a socket. Call it before Stall. No process
// of the test may hold that descriptor: it would wait for the server when it starts another process, and when it ends.
func (s *FileServer) SendFile(t testing.TB, socket *os.File, message []byte) {
	t.Helper()
	s.sendFor(t, 'm', socket, message)
}

func (s *FileServer) sendFor(t testing.TB, word byte, socket *os.File, message []byte) {
	t.Helper()
	if err := unix.Sendmsg(int(s.control.Fd()), append([]byte{word}, message...), unix.UnixRights(int(socket.Fd())), nil, 0); err != nil {
		t.Fatalf("the file server has exited: %v, %s", err, s.process.Err.String())
	}
	for {
		if got, _ := s.await(t); got[0] == word {
			return
		}
	}
}

// SendDetached makes the server send a message to a socket with a descriptor of the root of another file system, which is
// no longer mounted: the process that closes its last descriptor waits for a read that only ends with the server. No
// process of the test may hold the descriptor. It is for StartFileServerInNamespace, before Stall.
func (s *FileServer) SendDetached(t testing.TB, socket *os.File, message []byte) {
	t.Helper()
	s.sendFor(t, 'd', socket, message)
}

// AwaitRequest waits for a request that is not answered, and returns its opcode.
func (s *FileServer) AwaitRequest(t testing.TB) int {
	t.Helper()
	for {
		if word, _ := s.await(t); word[0] == 'w' {
			return int(word[1])
		}
	}
}

// RootRequests returns the requests that processes of root with one of these names have made since the last call: how root looked
// at the file system, or changed it.
func (s *FileServer) RootRequests(t testing.TB, programs ...string) (list []string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.Dir), "requests")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		program, _, _ := strings.Cut(line, ":")
		if line = strings.TrimSpace(line); slices.Contains(programs, program) && !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	return list
}

// End ends the server: pending requests fail with an error.
func (s *FileServer) End() { s.process.kill() }

// await returns the server's next word, of two bytes, and the data that came with it.
func (s *FileServer) await(t testing.TB) ([]byte, *os.File) {
	t.Helper()
	fd := int(s.control.Fd())
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, int(Slow(time.Minute).Milliseconds())); n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatalf("the file server does not reply: %v", err)
	}
	b, control := make([]byte, 2), make([]byte, unix.CmsgSpace(4))
	n, cn, _, _, err := unix.Recvmsg(fd, b, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 2 {
		t.Fatalf("the file server has ended: %v, %s", err, s.process.Err.String())
	}
	list, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil || len(list) == 0 {
		return b, nil
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil {
		t.Fatal(err)
	}
	return b, os.NewFile(uintptr(fds[0]), "overlay")
}

// Fuse requires file systems in user space, also in user namespaces: Linux 4.18.
func Fuse() error {
	if err := machine("FUSE"); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return errors.New("no FUSE: /dev/fuse is missing")
	}
	return UserNamespaces()
}
