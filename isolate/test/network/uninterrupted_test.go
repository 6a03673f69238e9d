package network

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/test/supervise"
	"corral/job"
)

// waitingCalls makes ten system calls that wait, each in a process of its own, and prints each that did not end as it should: all but msgrcv
// by its timeout of five seconds. The freezer interrupts them with EINTR.
var waitingCalls = sandboxtest.Python + fmt.Sprintf(`
import errno, select, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
spec = struct.pack("qq", 5, 0)
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, spec)
full, other = socket.socketpair()
full.setblocking(False)
try:
    while full.send(b"x" * 65536): pass
except BlockingIOError: full.setblocking(True)
full.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, spec)
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, spec)
poll, sem = libc.epoll_create1(0), libc.semget(0, 1, 0o600)
queue = libc.msgget(0, 0o600)
events, usr1 = ctypes.create_string_buffer(12), struct.pack("Q", 1 << signal.SIGUSR1 - 1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
calls = {
    "epoll_wait": (0, lambda: libc.epoll_wait(poll, events, 1, 5000)),
    "epoll_pwait": (0, lambda: libc.epoll_pwait(poll, events, 1, 5000, None)),
    "sigtimedwait": (errno.EAGAIN, lambda: libc.syscall(%d, usr1, None, spec, ctypes.c_long(8))),
    "semtimedop": (errno.EAGAIN, lambda: libc.semtimedop(sem, struct.pack("HhH", 0, -1, 0), ctypes.c_size_t(1), spec)),
    "msgrcv": (0, lambda: libc.msgrcv(queue, ctypes.create_string_buffer(16), ctypes.c_size_t(1), ctypes.c_long(0), 0)),
    "recv": (errno.EAGAIN, lambda: libc.recv(a.fileno(), events, ctypes.c_size_t(1), 0)),
    "send": (errno.EAGAIN, lambda: libc.send(full.fileno(), events, ctypes.c_size_t(1), 0)),
    "accept": (errno.EAGAIN, lambda: libc.accept(server.fileno(), None, None)),
    "clock_nanosleep": (0, lambda: libc.syscall(%d, 1, 0, spec, None)),
    "poll": (0, lambda: libc.poll(None, 0, 5000)),
}
children = {}
for name, (want, call) in calls.items():
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.get_errno() if call() < 0 else 0)
    children[pid] = name, want
print("ready", flush=True)
for pid, (name, want) in list(children.items()):
    if name == "msgrcv": libc.msgsnd(queue, struct.pack("qc", 1, b"x"), ctypes.c_size_t(1), 0)
    got = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if got != want: print(name, errno.errorcode.get(got, got))
print("done")
`, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_CLOCK_NANOSLEEP)

// TestNothingInterrupts: system calls of a job that wait are not interrupted, in the first job of a supervisor and in one beside it, while
// others make the kernel hold memory and record locks, and use up as much of the file system as the job may.
func TestNothingInterrupts(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	for _, tt := range []struct {
		name      string
		workspace job.Workspace
		network   bool
	}{{"network", job.Direct, true}, {"direct", job.Direct, false}, {"overlay", job.Overlay, false}} {
		for _, churning := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/churn %t", tt.name, churning), func(t *testing.T) {
				var f *supervise.Front
				if tt.network {
					f = newWorld(t).Front
				} else {
					f = supervise.New(t)
				}
				ss := f.Session(job.SessionSpec{Workspace: tt.workspace})
				var jobs []*fronttest.Live
				for range 2 {
					spec := f.Spec("python3", "-c", waitingCalls)
					spec.Session, spec.Workspace = ss.ID, ss.Workspace
					spec.Limits.Disk = 16 << 20
					jobs = append(jobs, f.Launch(spec))
				}
				if churning {
					churn(t, f.Repo)
				}
				for _, l := range jobs {
					if d, err := l.End(); err != nil || d.Status != job.Success || d.Out != "ready\ndone\n" {
						t.Errorf("%+v %q %s %v", d.Result, d.Out, d.Err, err)
					}
				}
			})
		}
	}
}

// churn makes the kernel hold 300,000 record locks, 58 MB, until the test ends, and uses up 64 MiB of the file system of a directory for
// a moment.
func churn(t *testing.T, dir string) {
	const files, locks = 600, 500
	locked := t.TempDir()
	for n := range files {
		f, err := os.OpenFile(filepath.Join(locked, fmt.Sprint(n)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		for at := range locks {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * at), Len: 1}
			if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
				t.Fatal(err)
			}
		}
	}
	big, err := os.CreateTemp(filepath.Dir(dir), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(big.Name())
	defer big.Close()
	if err := unix.Fallocate(int(big.Fd()), 0, 0, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := big.Sync(); err != nil {
		t.Fatal(err)
	}
}
