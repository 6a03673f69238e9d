package sandboxtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A fuseServer is the process of a FileServer.
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
	go func() { failed <- s.serveCommands() }()
	return <-failed
}

// serveCommands executes the test's commands until the test ends.
func (s *fuseServer) serveCommands() error {
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
	if err := unix.Mount("corral-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device)); err != nil {
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
	if binary.NativeEndian.Uint32(request[24:]) == 0 {
		if err := s.record(opcode, binary.NativeEndian.Uint32(request[32:]), request[40:]); err != nil {
			return err
		}
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

// record adds a request of a process of root to the file that RootRequests reads.
func (s *fuseServer) record(opcode, thread uint32, body []byte) error {
	program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", thread))
	if err != nil {
		return nil // the process has ended
	}
	name := ""
	if opcode == FuseLookup {
		name = " of " + string(body[:max(len(body)-1, 0)])
	}
	f, err := os.OpenFile(filepath.Join(s.top, "requests"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s: request %d%s\n", strings.TrimSpace(string(program)), opcode, name)
	return errors.Join(err, f.Close())
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
		kind, _, _ := strings.Cut(name, "-")
		found := map[string]uint64{"dir": fuseDir, "file": fuseFile}[kind]
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
