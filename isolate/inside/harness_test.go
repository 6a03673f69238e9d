package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// patience bounds each wait for the stub, which does nothing but system calls.
const patience = 20 * time.Second

// nobody is the user of these jobs: an id without an account that no supervisor assigns either.
const nobody = 0x6fff0001

// needsJail lists steps that need a jail's root, which these stubs do not have.
var needsJail = []string{"mqueue", "proc-masks", "proc-sys", "accounts", "repo"}

// A stub is a process of the real stub program, in its own namespaces and in the host's root.
type stub struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket int // the supervisor's end
}

// newStub starts a stub that leaves out what needs a jail, and prepares it. It inherits the given descriptors, as if they had been left open
// by mistake.
func newStub(t testing.TB, p Prepare, inherited ...*os.File) *stub {
	t.Helper()
	for _, step := range needsJail {
		p.Skip |= Step(step)
	}
	return prepared(t, "corral-stub-test", p, inherited...)
}

// prepared starts the program of a stub, and prepares it.
func prepared(t testing.TB, program string, p Prepare, inherited ...*os.File) *stub {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "stub")
	defer theirs.Close()
	s := &stub{t: t, cmd: exec.Command(sandboxtest.Bin(t, program)), socket: pair[0]}
	s.cmd.ExtraFiles = append([]*os.File{theirs}, inherited...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	wait := unix.NsecToTimeval(int64(sandboxtest.Slow(patience)))
	if err := unix.SetsockoptTimeval(s.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.hangUp()
		_ = s.cmd.Wait()
	})
	if r := s.report(); r.Kind != Hello {
		t.Fatalf("got %+v, want a report of kind Hello", r)
	}
	p.UID, p.TmpBytes, p.TmpInodes = nobody, 1<<20, 100
	allow := memory(t, []byte{0x06, 0, 0, 0, 0, 0, 0xff, 0x7f}) // BPF_RET, SECCOMP_RET_ALLOW
	s.send(p.Append(), allow)
	for _, b := range p.Binds {
		s.send(b.Append())
	}
	return s
}

// waiting starts a stub that waits for its plan.
func waiting(t testing.TB, inherited ...*os.File) *stub {
	t.Helper()
	s := newStub(t, Prepare{}, inherited...)
	if r := s.report(); r.Kind != Ready {
		t.Fatalf("got %+v, want a report of kind Ready", r)
	}
	return s
}

// hangUp closes the supervisor's end of the socket.
func (s *stub) hangUp() {
	if s.socket >= 0 {
		unix.Close(s.socket)
	}
	s.socket = -1
}

func (s *stub) send(b []byte, files ...*os.File) {
	s.t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if err := unix.Sendmsg(s.socket, b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
		s.t.Fatal(err)
	}
}

// report returns the next report, or the zero Report if the stub has ended.
func (s *stub) report() Report {
	s.t.Helper()
	b := make([]byte, reportSize+1)
	n, err := unix.Read(s.socket, b)
	for errors.Is(err, unix.EINTR) { // a signal of the Go runtime
		n, err = unix.Read(s.socket, b)
	}
	if n == 0 && err == nil {
		return Report{}
	}
	if err != nil {
		s.t.Fatalf("no report: %v", err)
	}
	r, err := ReadReport(b[:n])
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// reports returns all reports until the stub's end. When the stub has reported that the job is gone, it is told to exit.
func (s *stub) reports() []Report {
	s.t.Helper()
	var list []Report
	for r := s.report(); r != (Report{}); r = s.report() {
		list = append(list, r)
		if r.Kind == Gone {
			if err := unix.Shutdown(s.socket, unix.SHUT_WR); err != nil {
				s.t.Errorf("the stub exited before the supervisor shut the socket down: %v", err)
			}
		}
	}
	return list
}

// second returns the process id, in the test's namespace, of the stub's process 2.
func (s *stub) second() int {
	s.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range dirs {
		if status(dir, "PPid") == strconv.Itoa(s.cmd.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				s.t.Fatal(err)
			}
			return pid
		}
	}
	s.t.Fatal("the stub has no child process")
	return 0
}

// status returns a field of a process's status(5), or "" if the process is gone.
func status(dir, key string) string {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return ""
	}
	if m := regexp.MustCompile(`(?m)^` + key + `:[ \t]*(.*)$`).FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}

// descriptors returns a process's open descriptors: number to link target.
func descriptors(t testing.TB, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]string{}
	for _, e := range list {
		if open[e.Name()], err = os.Readlink(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return open
}

// memory returns a memfd with the given content.
func memory(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// payload returns the payload that a front-end would send for argv.
func payload(t testing.TB, argv ...string) *os.File {
	t.Helper()
	return payloadWith(t, argv, nil)
}

// payloadWith returns the payload that a front-end would send for argv and an environment.
func payloadWith(t testing.TB, argv, env []string) *os.File {
	t.Helper()
	var b []byte
	for _, n := range []int{0x4c524f43, len(argv), len(env), 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return memory(t, []byte(string(b)+strings.Join(slices.Concat(argv, env), "\x00")+"\x00"))
}

// pipe returns a pipe for a job's output.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// plan returns a plan without a repository, for which these stubs have no mount point.
func plan() Plan {
	return Plan{NoRepo: true, RootDir: true, Repo: "/nowhere", Dir: ".", TmpBytes: 1 << 20, TmpInodes: 100}
}

// run has the stub execute argv, and returns the program's output and the stub's reports.
func (s *stub) run(p Plan, argv ...string) (string, []Report) {
	s.t.Helper()
	r, w := pipe(s.t)
	s.send(p.Append(), payload(s.t, argv...), w, w)
	w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out), s.reports()
}
