package isolate

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A holder is a process that keeps a user namespace alive until it is open: a namespace is made by a process in it. It is
// the stub by another name, and ends with its standard input.
type holder struct {
	pid   int
	input *os.File
	said  *os.File // the other end of its standard output
}

// hold starts the stub with arguments args and attributes sys.
func (p *programs) hold(args []string, sys *syscall.SysProcAttr) (*holder, error) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inWrite.Close()
		return nil, err
	}
	defer outWrite.Close()
	attr := &syscall.ProcAttr{Files: []uintptr{inRead.Fd(), outWrite.Fd()}, Env: []string{}, Sys: sys}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", p.stub.Fd()), args, attr)
	if err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, fmt.Errorf("a process to hold a user namespace: %w", err)
	}
	return &holder{pid: pid, input: inWrite, said: outRead}, nil
}

// open returns the holder's user namespace.
func (h *holder) open() (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/ns/user", h.pid)) }

func (h *holder) end() {
	h.input.Close()
	h.said.Close()
	for {
		if _, err := syscall.Wait4(h.pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// idmap makes a user namespace that serves as a map only: count ids from uid and gid of files appear as those from host id
// to, all others as nobody's. The namespace lives as long as the returned descriptor and the mounts made with it.
func (p *programs) idmap(uid, gid, to uint32, count int) (*os.File, error) {
	h, err := p.hold([]string{"hold"}, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(uid), HostID: int(to), Size: count}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(gid), HostID: int(to), Size: count}},
	})
	if err != nil {
		return nil, err
	}
	defer h.end()
	return h.open()
}

// jailUsers makes the user namespace of a jail whose block of ids begins at base: root in it is base, the jobs' users
// follow. Its owner is base too: see own in the stub.
func (p *programs) jailUsers(base uint32) (*os.File, error) {
	h, err := p.hold([]string{"own", strconv.FormatUint(uint64(base), 10)}, nil)
	if err != nil {
		return nil, err
	}
	defer h.end()
	said := make([]byte, 1)
	if _, err := h.said.Read(said); err != nil {
		return nil, fmt.Errorf("the jail's user namespace: %w", err)
	}
	if said[0] != 0 {
		return nil, fmt.Errorf("the jail's user namespace: %w", unix.Errno(said[0]))
	}
	ids := fmt.Sprintf("0 %d 1\n%d %d %d\n", base, firstJobUID, base+1, jobUIDs)
	for _, name := range []string{"gid_map", "uid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", h.pid, name), []byte(ids), 0); err != nil {
			return nil, fmt.Errorf("the jail's user namespace: %w", err)
		}
	}
	return h.open()
}
