package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate"
)

// canarySocket is an abstract socket of the machine's network namespace, which corral-egress shares.
const canarySocket = "@corral-egress-canary"

// A puppet is a thread of another process that makes the system calls of this test, as if an attacker had taken the process over.
type puppet struct {
	t    *testing.T
	tid  int
	regs unix.PtraceRegs // of the thread before a call, at its system call instruction
	heap uintptr         // where texts are written: below its stack pointer

	result int // of the last call that succeeded
}

// takeOver stops a thread in a system call. The process is of no other use afterwards: it must be killed. The caller is locked to its
// thread until then.
func takeOver(t *testing.T, pid int) (p *puppet) {
	t.Helper()
	runtime.LockOSThread()
	sandboxtest.Eventually(t, 20*time.Second, "a thread is in a system call", func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task))
			if p = attach(t, tid); p != nil {
				return true
			}
		}
		return false
	})
	return p
}

// attach stops a thread, and returns nil if that is not in a system call.
func attach(t *testing.T, tid int) *puppet {
	t.Helper()
	p := &puppet{t: t, tid: tid}
	var status unix.WaitStatus
	err := unix.PtraceAttach(tid)
	if err == nil {
		_, err = unix.Wait4(tid, &status, unix.WALL, nil)
	}
	if err == nil {
		err = unix.PtraceGetRegs(tid, &p.regs)
	}
	if err != nil {
		t.Log(err) // the thread has ended
		_ = unix.PtraceDetach(tid)
		return nil
	}
	instruction := make([]byte, 2)
	p.regs.Rip -= 2
	if _, err := unix.PtracePeekText(tid, uintptr(p.regs.Rip), instruction); err != nil || instruction[0] != 0x0f || instruction[1] != 0x05 {
		_ = unix.PtraceDetach(tid)
		return nil
	}
	p.heap = uintptr(p.regs.Rsp)&^15 - 2048
	return p
}

// kill ends the process. A traced thread that has ended stays until its tracer has waited for it, and so does the process: the supervisor,
// which waits for that, would never end.
func (p *puppet) kill(pid int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	for p.tid != pid { // the first thread is the process, for which the supervisor waits
		if _, err := unix.Wait4(p.tid, nil, unix.WALL, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// call makes a system call. Arguments are numbers, or texts whose address is passed.
func (p *puppet) call(number uintptr, args ...any) unix.Errno {
	p.t.Helper()
	r := p.regs
	r.Rax, r.Orig_rax = uint64(number), ^uint64(0) // what it was in is not restarted
	at := p.heap
	for n, slot := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		if *slot = 0; n >= len(args) {
			continue
		}
		switch arg := args[n].(type) {
		case int:
			*slot = uint64(arg)
		case string:
			if _, err := unix.PtracePokeData(p.tid, at, append([]byte(arg), make([]byte, 8)...)); err != nil {
				p.t.Fatal(err)
			}
			*slot = uint64(at)
			at += uintptr(len(arg)+8+15) &^ 15
		}
	}
	var status unix.WaitStatus
	err := unix.PtraceSetRegs(p.tid, &r)
	if err == nil {
		err = unix.PtraceSingleStep(p.tid)
	}
	if err == nil {
		_, err = unix.Wait4(p.tid, &status, unix.WALL, nil)
	}
	if errors.Is(err, unix.ECHILD) || err == nil && !status.Stopped() {
		return unix.ESRCH // the filter ended the process, whose end the supervisor may hear of first
	}
	if err == nil {
		err = unix.PtraceGetRegs(p.tid, &r)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.result = int(r.Rax)
	if p.result < 0 {
		return unix.Errno(-p.result)
	}
	return 0
}

// A deed is a system call of an attacker.
type deed struct {
	name   string
	number uintptr
	args   []any
}

// deeds reach for files, processes, sockets, rights and rare parts of the kernel. Where one is not prevented, it does no harm.
var deeds = []deed{
	{"read a file", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/etc/passwd", unix.O_RDONLY}},
	{"read a file, openat2", unix.SYS_OPENAT2, []any{unix.AT_FDCWD, "/etc/passwd", "\x00", 24}},
	{"open its memory", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/proc/self/mem", unix.O_RDWR}},
	{"read its environment", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/proc/self/environ", unix.O_RDONLY}},
	{"open the root", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/", unix.O_PATH}},
	{"open a device", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/dev/null", unix.O_RDWR}},
	{"open cgroups", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/sys/fs/cgroup", unix.O_RDONLY}},
	{"open the supervisor's directory", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/var/lib/corral", unix.O_PATH}},
	{"make a file", unix.SYS_OPENAT, []any{unix.AT_FDCWD, "/tmp/corral-egress-canary", unix.O_CREAT | unix.O_WRONLY, 0o600}},
	{"make a link", unix.SYS_SYMLINKAT, []any{"/", unix.AT_FDCWD, "/tmp/corral-egress-link"}},
	{"make a directory", unix.SYS_MKDIRAT, []any{unix.AT_FDCWD, "/tmp/corral-egress-directory", 0o700}},
	{"change a mode", unix.SYS_FCHMODAT, []any{unix.AT_FDCWD, "/tmp/corral-egress-none", 0o777}},
	{"start a program", unix.SYS_EXECVE, []any{"/bin/true", 0, 0}},
	{"start a program by descriptor", unix.SYS_EXECVEAT, []any{2, "", 0, 0, unix.AT_EMPTY_PATH}},
	{"fork", unix.SYS_FORK, nil},
	{"clone without threads", unix.SYS_CLONE, []any{int(unix.SIGCHLD), 0, 0, 0, 0}},
	{"clone3", unix.SYS_CLONE3, []any{0, 0}},
	{"become root", unix.SYS_SETRESUID, []any{0, 0, 0}},
	{"become root's group", unix.SYS_SETRESGID, []any{0, 0, 0}},
	{"have groups", unix.SYS_SETGROUPS, []any{0, 0}},
	{"have a user namespace", unix.SYS_UNSHARE, []any{unix.CLONE_NEWUSER}},
	{"have a network namespace", unix.SYS_UNSHARE, []any{unix.CLONE_NEWNET}},
	{"enter a namespace", unix.SYS_SETNS, []any{2, 0}},
	{"mount", unix.SYS_MOUNT, []any{"none", "/tmp", "tmpfs", 0, 0}},
	{"mount, by the new calls", unix.SYS_FSOPEN, []any{"tmpfs", 0}},
	{"change the root", unix.SYS_CHROOT, []any{"/"}},
	{"trace", unix.SYS_PTRACE, []any{unix.PTRACE_SEIZE, 2, 0, 0}},
	{"read another process's memory", unix.SYS_PROCESS_VM_READV, []any{2, 0, 0, 0, 0, 0}},
	{"signal everybody, with none", unix.SYS_KILL, []any{-1, 0}},
	{"refer to a process", unix.SYS_PIDFD_OPEN, []any{1, 0}},
	{"take a descriptor", unix.SYS_PIDFD_GETFD, []any{3, 0, 0}},
	{"be dumpable", unix.SYS_PRCTL, []any{unix.PR_SET_DUMPABLE, 1, 0, 0, 0}},
	{"have another personality", unix.SYS_PERSONALITY, []any{0x0400000}},
	{"io_uring", unix.SYS_IO_URING_SETUP, []any{1, "\x00"}},
	{"bpf", unix.SYS_BPF, []any{0, "\x00", 8}},
	{"userfaultfd", unix.SYS_USERFAULTFD, []any{1}},
	{"perf events", unix.SYS_PERF_EVENT_OPEN, []any{"\x00", 0, -1, -1, 0}},
	{"keyrings", unix.SYS_ADD_KEY, []any{"user", "corral", "x", 1, -2}},
	{"a file in memory", unix.SYS_MEMFD_CREATE, []any{"x", 0}},
	{"shared memory", unix.SYS_SHMGET, []any{0, 4096, 0o1600}},
	{"a message queue", unix.SYS_MQ_OPEN, []any{"corral-egress", unix.O_CREAT, 0o600, 0}},
	{"file handles", unix.SYS_NAME_TO_HANDLE_AT, []any{unix.AT_FDCWD, "/", "\x80", "\x00", 0}},
	{"inotify", unix.SYS_INOTIFY_INIT1, []any{0}},
	{"fanotify", unix.SYS_FANOTIFY_INIT, []any{0, 0}},
	{"the kernel's log", unix.SYS_SYSLOG, []any{3, "\x00", 1}},
	{"type into a terminal", unix.SYS_IOCTL, []any{2, unix.TIOCSTI, "x"}},
	{"a unix socket", unix.SYS_SOCKET, []any{unix.AF_UNIX, unix.SOCK_STREAM, 0}},
	{"a pair of unix sockets", unix.SYS_SOCKETPAIR, []any{unix.AF_UNIX, unix.SOCK_STREAM, 0, "\x00"}},
	{"a packet socket", unix.SYS_SOCKET, []any{unix.AF_PACKET, unix.SOCK_RAW, 0}},
	{"a raw socket", unix.SYS_SOCKET, []any{unix.AF_INET, unix.SOCK_RAW, 1}},
	{"a ping socket", unix.SYS_SOCKET, []any{unix.AF_INET, unix.SOCK_DGRAM, 1}},
	{"vsock", unix.SYS_SOCKET, []any{unix.AF_VSOCK, unix.SOCK_STREAM, 0}},
	{"the kernel's cryptography", unix.SYS_SOCKET, []any{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}},
	// Last: it ends the process.
	{"a call by its number of x32", unix.SYS_GETPID | 0x40000000, nil},
}

// TestEgressTakenOver: an attacker with the process that connects a user's jobs to hosts reaches no file, process, socket or right of the
// machine, and no other job.
func TestEgressTakenOver(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.LandlockABI(1))
	canary, err := net.Listen("unix", canarySocket)
	if err != nil {
		t.Fatal(err)
	}
	defer canary.Close()
	w := newWorld(t, func(c *isolate.Config) { c.Log = nil }) // it logs the end of the process as an error
	w.sh(fetch)
	pids := egresses(t)
	if len(pids) != 1 {
		t.Fatalf("%d processes", len(pids))
	}
	p := takeOver(t, pids[0])
	defer runtime.UnlockOSThread()
	defer p.kill(pids[0])
	if errno := p.call(unix.SYS_SCHED_YIELD); errno != 0 {
		t.Fatalf("sched_yield: %v: the attacker can do nothing, so nothing is shown", errno)
	}
	all := deeds
	for _, fd := range sockets(t, pids[0]) {
		all = append([]deed{
			{"an abstract socket, by a socket that it has", unix.SYS_CONNECT, []any{fd, "\x01\x00\x00" + canarySocket[1:], 3 + len(canarySocket) - 1}},
			{"send descriptors", unix.SYS_SENDMSG, []any{fd, strings.Repeat("\x00", 56), 0}},
		}, all...)
	}
	for _, d := range all {
		if errno := p.call(d.number, d.args...); errno == 0 {
			t.Errorf("%s: it can", d.name)
		} else {
			t.Logf("%s: %v", d.name, errno)
		}
	}
}

// storeFD is the descriptor of the directory in which the process keeps packages.
const storeFD = 5

// readable returns the address of a MiB of a process's memory that can be read.
func readable(t *testing.T, pid int) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var from, to int
		if _, err := fmt.Sscanf(line, "%x-%x r", &from, &to); err == nil && to-from >= 1<<20 {
			return from
		}
	}
	t.Fatalf("no MiB in %s", maps)
	return 0
}

// TestStoreFilled: an attacker with the process that keeps packages fills the volume of its user, in bytes and in files, and not the state
// directory. The next process removes what was left, and keeps packages again.
func TestStoreFilled(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.LandlockABI(1))
	m := newMall(t, "", func(c *isolate.Config) { c.Log = nil }) // it logs the end of the process as an error
	install := func() {
		t.Helper()
		if d := m.install(m.again(t), installers[0].script); !strings.Contains(d.Out, installers[0].young) {
			t.Errorf("%s%s", d.Out, d.Err)
		}
	}
	install()
	pids := egresses(t)
	if len(pids) != 1 {
		t.Fatalf("%d processes", len(pids))
	}
	p := takeOver(t, pids[0])
	defer runtime.UnlockOSThread()
	ended := false
	end := func() {
		if !ended {
			p.kill(pids[0])
		}
		ended = true
	}
	defer end()
	for n, errno := 0, unix.Errno(0); errno != unix.ENOSPC; n++ {
		if errno = p.call(unix.SYS_OPENAT, storeFD, fmt.Sprint("file-", n), unix.O_CREAT|unix.O_WRONLY, 0o600); errno == 0 {
			errno = p.call(unix.SYS_CLOSE, p.result)
		}
		if errno != 0 && errno != unix.ENOSPC || n > 1<<15 {
			t.Fatalf("%d files: %v", n, errno)
		}
	}
	if errno := p.call(unix.SYS_OPENAT, storeFD, "file-0", unix.O_WRONLY, 0); errno != 0 {
		t.Fatal(errno)
	}
	fd, from := p.result, readable(t, pids[0])
	for n, errno := 0, unix.Errno(0); errno != unix.ENOSPC; n++ {
		if errno = p.call(unix.SYS_WRITE, fd, from, 1<<20); errno != 0 && errno != unix.ENOSPC || n > 1000 {
			t.Fatalf("%d MiB: %v", n, errno)
		}
	}
	root, path := volumeOf(t, m.State, sandboxtest.Owner)
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		t.Error(err)
	}
	root.Close()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > 64<<20 {
		t.Errorf("the volume has %d bytes, %d on the disk, %v", st.Size, st.Blocks*512, err)
	}
	end()
	sandboxtest.Eventually(t, 20*time.Second, "packages are kept again", func() bool {
		install()
		m.off.Store(true)
		defer m.off.Store(false)
		d := m.install(m.again(t), installers[0].script)
		return strings.Contains(d.Out, installers[0].young)
	})
	if list := kept(t, m.State, sandboxtest.Owner); len(list) > 100 {
		t.Errorf("%d files", len(list))
	}
}

// sockets returns the descriptors of a process that are sockets.
func sockets(t *testing.T, pid int) (fds []int) {
	t.Helper()
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.HasPrefix(to, "socket:") {
			fd, _ := strconv.Atoi(filepath.Base(link))
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 {
		t.Fatal("it has no socket, not even to the supervisor")
	}
	return fds
}
