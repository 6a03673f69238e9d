package isolate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestMemory: a job that exceeds its memory limit ends as a whole, and the next one is not affected.
func TestMemory(t *testing.T) {
	f := sharedFront(t)
	for _, script := range []string{
		`my $x = "x" x (1 << 30); print "survived"`,
		// The child runs out of memory; its parent and another process end with it.
		`if (fork) { if (fork) { wait; print "survived"; sleep 1000 } else { sleep 1000 } } else { my $x = "x" x (1 << 30) }`,
	} {
		spec := f.Spec("perl", "-e", script)
		spec.Limits.Memory = 64 << 20
		d := f.Run(spec)
		if d.Limit != job.LimitMemory || d.Status != job.Failure || d.Out != "" || d.Usage.PeakMemory > 64<<20 {
			t.Errorf("%s: %+v %q", script, d.Result, d.Out)
		}
		if got := f.Sh("echo well"); got != "well" {
			t.Errorf("afterwards: %q", got)
		}
	}
}

// TestTmpIsMemory: files in a private directory count toward the job's memory.
func TestTmpIsMemory(t *testing.T) {
	f := sharedFront(t)
	// Where the supervisor ends the job after the kernel's notice (v1), the shell can run on for a moment.
	spec := f.Spec("sh", "-c", "head -c 200000000 /dev/zero >/tmp/x && echo survived")
	spec.Limits.Memory = 64 << 20
	if d := f.Run(spec); d.Limit != job.LimitMemory || d.Out != "" {
		t.Errorf("%+v %q", d.Result, d.Out)
	}
}

// TestPrivateSize: private directories have the size of the memory limit, and in a session /dev/shm too, unless they have a limit.
func TestPrivateSize(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		limits job.Limits
		want   string
	}{
		{job.Limits{}, "2048M 131072"},
		{job.Limits{Memory: 3 << 30}, "3072M 196608"},
		{job.Limits{Memory: 64 << 20}, "64M 65536"},
		{job.Limits{Memory: 3 << 30, Tmp: 5 << 20, TmpInodes: 77}, "5M 77"},
		{job.Limits{Tmp: job.Unlimited, TmpInodes: job.Unlimited}, "2048M 131072"},
	} {
		spec := f.Spec("sh", "-c", "df -BM --output=size,itotal /tmp /var/tmp /home /dev/shm | tail -n +2 | tr -s ' ' | sed 's/^ //' | sort -u")
		spec.Limits = tt.limits
		if d := f.Run(spec); strings.TrimSpace(d.Out) != tt.want {
			t.Errorf("%+v: %q, want %q; %s", tt.limits, d.Out, tt.want, d.Err)
		}
	}
}

// TestPrivateFull: a job that fails while a private directory is full says which. One that succeeds, or has room, does not.
func TestPrivateFull(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		name, script string
		limits       job.Limits
		want         string
	}{
		{"/tmp", "head -c 3000000 /dev/zero >/tmp/x", job.Limits{Tmp: 1 << 20}, "/tmp"},
		{"home", "head -c 3000000 /dev/zero >/home/job/x", job.Limits{Tmp: 1 << 20}, "/home"},
		{"two", "head -c 3000000 /dev/zero >/home/job/x; head -c 3000000 /dev/zero >/dev/shm/x", job.Limits{Tmp: 1 << 20}, "/home /dev/shm"},
		{"what did not fit was removed", "head -c 3000000 /dev/zero >/tmp/x; truncate -s 1020K /tmp/x; exit 1", job.Limits{Tmp: 1 << 20}, "/tmp"},
		{"files", "for i in $(seq 100); do : >/tmp/$i || exit; done", job.Limits{TmpInodes: 32}, "/tmp"},
		{"half", "head -c 500000 /dev/zero >/tmp/x; exit 1", job.Limits{Tmp: 1 << 20}, ""},
		{"a job that succeeds", "head -c 3000000 /dev/zero >/tmp/x; true", job.Limits{Tmp: 1 << 20}, ""},
		{"a directory that is empty again", "head -c 3000000 /dev/zero >/tmp/x; rm /tmp/x; exit 1", job.Limits{Tmp: 1 << 20}, ""},
		{"nothing", "exit 1", job.Limits{}, ""},
	} {
		spec := f.Spec("sh", "-c", tt.script)
		spec.Limits = tt.limits
		d := f.Run(spec)
		if got := strings.Join(d.FullDirs, " "); got != tt.want || (d.Limit == job.LimitTmp) != (tt.want != "") {
			t.Errorf("%s: full %q, want %q; %+v", tt.name, got, tt.want, d.Result)
		}
	}
}

// TestProcesses: forks beyond the limit fail with EAGAIN, and no process is left.
func TestProcesses(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("perl", "-e", `my $n = 0; for (1..200) { my $p = fork; last unless defined $p; if (!$p) { sleep 1000 } $n++ } print "$n ", $!+0`)
	spec.Limits.PIDs = 20
	d := f.Run(spec)
	// Process 1 and the program itself count.
	if d.Out != "18 11" || d.Limit != job.LimitPIDs || d.Status != job.Success || d.Usage.PeakPIDs > 20 {
		t.Errorf("%q %s %+v", d.Out, d.Err, d.Result)
	}
	// A fork bomb that is ended at the deadline.
	spec = f.Spec("perl", "-e", `$SIG{TERM} = "IGNORE"; while (1) { fork }`)
	spec.Limits = job.Limits{PIDs: 50, Wall: 200 * time.Millisecond}
	if d := f.Run(spec); d.Status != job.Timeout || d.Usage.PeakPIDs > 50 {
		t.Errorf("storm: %+v", d.Result)
	}
}

// TestLimitErrors: limits that a job meets as an error or a signal.
func TestLimitErrors(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		name, script string
		limits       job.Limits
		want         string // in the job's output
	}{
		{"bytes of /tmp", `head -c 3000000 /dev/zero >/tmp/x`, job.Limits{Tmp: 1 << 20}, "No space left on device"},
		{"bytes of /dev/shm", `head -c 3000000 /dev/zero >/dev/shm/x`, job.Limits{Tmp: 1 << 20}, "No space left on device"},
		{"bytes of home", `head -c 3000000 /dev/zero >/home/job/x`, job.Limits{Tmp: 1 << 20}, "No space left on device"},
		{"files of /tmp", `for i in $(seq 100); do : >/tmp/$i || exit; done`, job.Limits{TmpInodes: 32}, "No space left on device"},
		{"size of a file", `trap '' XFSZ; head -c 2000 /dev/zero >x`, job.Limits{FileSize: 1000}, "File too large"},
		{"descriptors", `exec perl -e 'while (open(my $f, "<", "/")) { push @f, $f } print $!'`, job.Limits{OpenFiles: 64}, "Too many open files"},
	} {
		spec := f.Spec("sh", "-c", "exec 2>&1\n"+tt.script)
		spec.Limits = tt.limits
		if d := f.Run(spec); !strings.Contains(d.Out, tt.want) {
			t.Errorf("%s: %q %+v", tt.name, d.Out, d.Result)
		}
	}
	spec := f.Spec("perl", "-e", `open(F, ">x"); syswrite(F, "x" x 2000); syswrite(F, "x")`)
	spec.Limits.FileSize = 1000
	if d := f.Run(spec); d.Signal != int(unix.SIGXFSZ) {
		t.Errorf("size of a file: %+v", d.Result)
	}
}

// TestSocketBuffers: data queued in a job's sockets is limited too. cgroup v1 accounts for it separately.
func TestSocketBuffers(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("perl", "-e", `
use Socket; use Fcntl;
my $sent = 0;
for (1..60) {
	socket(my $l, PF_INET, SOCK_STREAM, 0); bind($l, sockaddr_in(0, INADDR_LOOPBACK)); listen($l, 1) or exit 3;
	socket(my $c, PF_INET, SOCK_STREAM, 0); connect($c, getsockname($l)); accept(my $s, $l) or exit 4;
	push @keep, $l, $c, $s;
	for my $end ($c, $s) {
		fcntl($end, F_SETFL, O_NONBLOCK);
		my $n;
		$sent += $n while $n = syswrite($end, "x" x 65536);
	}
}
print int($sent / (1 << 20));`)
	const limit = 32 << 20
	spec.Limits.Memory = limit
	d := f.Run(spec)
	// Beyond the limit, the kernel lets each socket have its minimum (tcp_rmem, tcp_wmem).
	if sent, err := strconv.Atoi(d.Out); d.Limit != job.LimitMemory && (err != nil || sent > 2*limit>>20) {
		t.Errorf("%s MiB wait in sockets: %+v, %v %s", d.Out, d.Result, err, d.Err)
	}
}

// TestCPU: a quota throttles the job. The test measures total CPU time; how often the kernel throttles is up to the
// kernel.
func TestCPU(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("perl", "-e", `while (1) {}`)
	spec.Limits = job.Limits{MilliCPUs: 200, Wall: sandboxtest.Slow(600 * time.Millisecond)}
	d := f.Run(spec)
	// 20 ms in each of at most seven periods of 100 ms.
	if d.Status != job.Timeout || d.Usage.CPU > d.Usage.Wall/2 {
		t.Errorf("%+v", d.Result)
	}
}

// TestDisk: what a job adds to the repository is limited; existing files and files elsewhere do not count.
func TestDisk(t *testing.T) {
	f := sharedFront(t)
	put(t, f.Repo+"/old", strings.Repeat("x", 3<<20), 0o644, owner)
	spec := f.Spec("sh", "-c", "cat old >/tmp/x; head -c 100000 /dev/zero >new; sync; echo well")
	spec.Limits.Disk = 2 << 20
	if d := f.Run(spec); d.Out != "well\n" || d.Limit != "" {
		t.Errorf("below the limit: %q %+v", d.Out, d.Result)
	}
	spec = f.Spec("sh", "-c", "while :; do head -c 1000000 /dev/zero >>big; sync; done")
	spec.Limits = job.Limits{Disk: 8 << 20, Wall: sandboxtest.Slow(time.Minute)} // what others free meanwhile hides what it writes
	if d := f.Run(spec); d.Limit != job.LimitDisk || d.Status != job.Failure {
		t.Errorf("beyond: %+v", d.Result)
	}
}

// TestDiskUnnamed: files without a name count whose descriptors are in the table of any thread. A job that passes descriptors all the time
// is not held to account for what others write.
func TestDiskUnnamed(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3")) // of a complete Python installation
	f := sharedFront(t)
	// The files are many times as large as the limit: when others delete files meanwhile, the free space falls by less.
	begin := python + endLeader + ownTable + `
import threading, time
def hold(size):
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.posix_fallocate(fd, 0, size); return fd
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
print("ready", flush=True)
`
	for name, code := range map[string]string{
		"the first thread has ended": `
def work(): leader_ended(); kept = [hold(32 << 20) for n in range(8)]; time.sleep(1000)
in_thread(work)`,
		"a thread with its own table": `
def work(): own_table(); kept = [hold(32 << 20) for n in range(8)]; time.sleep(1000)
threading.Thread(target=work).start()`,
		// Many more than the limit: when others delete files meanwhile, the number of free inodes falls by less.
		"many files": `
for n in range(2000): os.open(".", os.O_TMPFILE | os.O_RDWR)
sys.stdin.read()`,
	} {
		spec := f.Spec("python3", "-c", begin+code)
		spec.Limits.Wall = sandboxtest.Slow(time.Minute)
		spec.Limits.Disk = 12 << 20
		want := job.LimitDisk
		if name == "many files" {
			spec.Limits.Disk, spec.Limits.Inodes, want = 0, 150, job.LimitFiles
		}
		l := f.Launch(spec)
		result, err := l.Wait()
		l.In.Close()
		if err != nil || result.Limit != want {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}

	spec := f.Spec("python3", "-c", begin+`
for n in range(50): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
kept = [os.open("/", os.O_PATH) for n in range(1500)] # 50 times as many would be too many to read
fd = hold(1 << 20); print("held", flush=True)
socket.send_fds(a, [b"x"], [fd])
while not os.path.exists("stop"): socket.send_fds(a, [b"x"], [fd]); socket.recv_fds(b, 1, 1)
print("well")`)
	spec.Limits.Disk = 12 << 20
	l := f.Launch(spec)
	l.Until("held\n")
	others := t.TempDir()
	for n := range 3 {
		shell(t, others, fmt.Sprintf("head -c 20M /dev/zero >f%d; sync f%d", n, n))
		f.Settle()
	}
	put(t, f.Repo+"/stop", "", 0o644, owner)
	if d, err := l.End(); err != nil || d.ExitCode != 0 || d.Limit != "" {
		t.Errorf("%+v, %v, %s", d.Result, err, d.Err)
	}
}

// TestDeadline: at the deadline all processes of a job end, including descendants in sessions of their own that
// ignore signals and hold its pipes. The result waits for the processes, not for the pipes.
func TestDeadline(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("perl", "-MPOSIX", "-e", `
		$SIG{$_} = "IGNORE" for qw(TERM INT HUP QUIT);
		for (1..3) { if (!fork) { setsid; exit if fork; $0 = "stays"; sleep 1000 while 1 } }
		print "up\n"; sleep 1000 while 1`)
	spec.Limits.Wall = 3 * time.Second // until then, it must ignore the signals
	d := f.Run(spec)                   // waiting for the pipes would take 1,000 s
	if d.Status != job.Timeout || d.Signal != int(unix.SIGKILL) || d.ExitCode != -1 {
		t.Errorf("%+v %s", d.Result, d.Err)
	}
}

// TestBackgroundProcessesKilled: a job ends with its first process; processes that it left running are gone when the
// result arrives.
func TestBackgroundProcessesKilled(t *testing.T) {
	f := sharedFront(t)
	for range sandboxtest.Scale(20) {
		f.Sh("for i in 1 2 3; do (setsid sleep 1000 &) & done; (while :; do sleep 0.001; done) & echo started")
		if left := members(t, f.s); len(left) > 0 {
			t.Fatalf("processes %v are left", left)
		}
	}
}

// TestLimitsOfHost: more than the supervisor itself may have is refused before the job starts, in a session as well.
func TestLimitsOfHost(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	if own.Max >= 1<<20 {
		t.Skip("the hard limit of this process is not below the maximum of a request")
	}
	f := newFront(t)
	for _, ss := range []job.Session{{}, f.Session(job.SessionSpec{Workspace: job.Overlay})} {
		spec := f.Spec("/bin/true")
		spec.Session, spec.Workspace, spec.Limits.OpenFiles = ss.ID, ss.Workspace, int64(own.Max)
		if d := f.Run(spec); d.Status != job.Success {
			t.Errorf("the maximum: %+v", d.Result)
		}
		spec.Limits.OpenFiles++
		_, err := f.Try(spec)
		refusedAt(t, "one more", err, "limits", 0)
	}
}

// TestMinimumLimits: a program starts with the minimum of each limit.
func TestMinimumLimits(t *testing.T) {
	f := sharedFront(t)
	var all job.Limits
	for i, field := range all.Fields() {
		var l job.Limits
		*l.Fields()[i].Value = field.Min
		if field.Name == "timeout" {
			continue // the deadline of a millisecond passes before the start, which is a valid result
		}
		spec := f.Spec("/bin/true")
		spec.Limits = l
		if d, err := f.Try(spec); err != nil || d.Status != job.Success {
			t.Errorf("%s %d: %+v, %v", field.Name, field.Min, d.Result, err)
		}
	}
}
