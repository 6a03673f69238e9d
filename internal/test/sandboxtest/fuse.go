package sandboxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
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
// and a file "file", which the kernel may not cache: each access is a request to the server.
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

// --- the server's process ---

type fuseServer struct {
	device  int
	top     string
	owner   uint32
	stalled atomic.Bool
	pages   int         // number of files that were mapped
	fault   chan uint64 // receives the node of each page that a process waits for
}

func serveFiles(kind, top string) error {
	owner := uint32(0) // in its user namespace
	options := "fd=%d,rootmode=40000,user_id=0,group_id=0"
	if kind == "host" {
		if _, err := fmt.Sscan(os.Getenv(fuseVar+"_OWNER"), &owner); err != nil {
			return err
		}
		options += ",allow_other"
	}
	device, err := unix.Open(filepath.Join(top, "fuse"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV
	s := &fuseServer{device: device, top: top, owner: owner, fault: make(chan uint64, 1024)}
	if err := unix.Mount("corral-test", top+"/mnt", "fuse", safe, fmt.Sprintf(options, device)); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- s.serve() }()
	var rights []byte
	if kind == "user" {
		layers := "lowerdir=" + top + "/mnt:" + top + "/lower"
		if err := unix.Mount("overlay", top+"/merged", "overlay", safe, layers); err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
		fd, err := unix.Open(top+"/merged", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open of the overlay: %w", err)
		}
		rights = unix.UnixRights(fd)
	}
	if err := unix.Sendmsg(3, []byte("r."), rights, nil, 0); err != nil {
		return err
	}
	go func() { failed <- s.obey() }()
	return <-failed
}

// obey executes the test's commands until the test ends.
func (s *fuseServer) obey() error {
	b, control := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(4))
	for {
		n, cn, _, _, err := unix.Recvmsg(3, b, control, unix.MSG_CMSG_CLOEXEC)
		if n == 0 || err != nil {
			return err
		}
		switch b[0] {
		case 's':
			s.stalled.Store(true)
		case 'm', 'd':
			open := s.openFile
			if b[0] == 'd' {
				open = s.openDetached
			}
			if err := s.send(b[1:n], control[:cn], open); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		if _, err := unix.Write(3, []byte{b[0], '.'}); err != nil {
			return err
		}
	}
}

// send sends a message with a descriptor to the socket in control, and closes both: otherwise this process would send a
// request to itself when it ends, and wait for the answer forever.
func (s *fuseServer) send(message, control []byte, open func() (int, error)) error {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(list) != 1 {
		return fmt.Errorf("%d sockets: %w", len(list), err)
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	file, err := open()
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendmsg(fds[0], message, unix.UnixRights(file), nil, 0), unix.Close(file))
}

func (s *fuseServer) openFile() (int, error) {
	return unix.Open(s.top+"/mnt/file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// openDetached mounts another file system, opens its root and unmounts it. Meanwhile its first request is being read into a
// page that the first file system does not deliver.
func (s *fuseServer) openDetached() (int, error) {
	dir, err := os.MkdirTemp(s.top, "detached")
	if err != nil {
		return -1, err
	}
	device, err := unix.Open(filepath.Join(s.top, "fuse"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Mount("corral-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)); err != nil {
		return -1, err
	}
	s.pages++
	name := string(rune('a' + s.pages - 1))
	file, err := unix.Open(s.top+"/mnt/"+name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// In a process that does not have the first file system's device open: it is then closed with this process, which ends
	// the wait.
	files := []*os.File{os.NewFile(uintptr(device), "device"), os.NewFile(uintptr(file), name)}
	cmd := exec.Command("/proc/self/exe", s.top)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), fuseVar+"=reader"), files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	for <-s.fault != fusePages+uint64(s.pages)-1 { // the kernel may request a page more than once
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return root, errors.Join(unix.Unmount(dir, unix.MNT_DETACH), files[0].Close(), files[1].Close())
}

// readInto reads a request of one file system into a page of another.
func readInto() error {
	page, err := unix.Mmap(4, 0, fusePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	_, err = unix.Read(3, page)
	return err
}

func (s *fuseServer) serve() error {
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(s.device, b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if errors.Is(err, unix.ENODEV) {
			return nil // it was unmounted
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := s.handle(b[:n]); err != nil {
			return err
		}
	}
}

// Nodes of the file system.
const (
	fuseRoot = iota + 1
	fuseDir
	fuseFile
	fusePages // and the following: files of one page, which is never delivered
)

const fusePage = 1 << 16

// handle answers one request, in the layouts of linux/fuse.h.
func (s *fuseServer) handle(request []byte) error {
	const forget, interrupt, batchForget = 2, 36, 42
	opcode := binary.NativeEndian.Uint32(request[4:])
	unique, node := binary.NativeEndian.Uint64(request[8:]), binary.NativeEndian.Uint64(request[16:])
	switch {
	case opcode == forget || opcode == batchForget || opcode == interrupt:
		return nil
	case opcode == fuseRead && node >= fusePages:
		s.fault <- node
		return nil
	case s.stalled.Load():
		_, err := unix.Write(3, []byte{'w', byte(opcode)})
		return err
	}
	body, errno := s.answer(opcode, node, request[40:])
	reply := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	reply = binary.NativeEndian.AppendUint32(reply, uint32(-int32(errno)))
	reply = append(binary.NativeEndian.AppendUint64(reply, unique), body...)
	if _, err := unix.Write(s.device, reply); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("answer to %d: %w", opcode, err)
	}
	return nil
}

func (s *fuseServer) answer(opcode uint32, node uint64, body []byte) ([]byte, unix.Errno) {
	const open, statfs, release, initialize, opendir, readdir, releasedir = 14, 17, 18, 26, 27, 28, 29
	switch opcode {
	case initialize:
		b := make([]byte, 64)
		binary.NativeEndian.PutUint32(b, 7)
		binary.NativeEndian.PutUint32(b[4:], 31)
		binary.NativeEndian.PutUint32(b[20:], 4096) // bytes of a write
		return b, 0
	case FuseLookup:
		name := string(body[:max(len(body)-1, 0)])
		found := map[string]uint64{"dir": fuseDir, "file": fuseFile}[name]
		if len(name) == 1 && name[0] >= 'a' {
			found = fusePages + uint64(name[0]-'a')
		}
		if found == 0 {
			return nil, unix.ENOENT
		}
		return append(append(binary.NativeEndian.AppendUint64(nil, found), make([]byte, 32)...), s.attributes(found)...), 0
	case FuseGetattr:
		return append(make([]byte, 16), s.attributes(node)...), 0
	case fuseRead: // sent on behalf of a process that has the file open
		return []byte("x"), 0
	case open, opendir:
		return make([]byte, 16), 0
	case statfs:
		return make([]byte, 80), 0
	case readdir, release, releasedir, FuseFlush:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

// attributes returns a struct fuse_attr.
func (s *fuseServer) attributes(node uint64) []byte {
	mode := uint32(unix.S_IFDIR | 0o755)
	if node >= fuseFile {
		mode = unix.S_IFREG | 0o644
	}
	b := make([]byte, 88)
	if node >= fusePages {
		binary.NativeEndian.PutUint64(b[8:], fusePage)
	}
	binary.NativeEndian.PutUint64(b, node)
	for i, n := range []uint32{mode, 1, s.owner, s.owner} {
		binary.NativeEndian.PutUint32(b[60+4*i:], n)
	}
	return b
}
