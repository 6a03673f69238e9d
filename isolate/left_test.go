package isolate

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// passOn is a Perl program that writes 8 MiB to a memory file, and passes it on to the job that listens at the socket s.
var passOn = fmt.Sprintf(`use Socket; my $s; socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un("s")) or die "connect: $!";
my $fd = syscall(%d, my $name = "m", 0); $fd >= 0 or die "memfd_create: $!";
open(my $m, ">&=", $fd) or die; syswrite($m, "x" x (1 << 20)) == 1 << 20 or die "write: $!" for 1..8;
my $iov = pack("PQ", my $byte = "x", 1); my $rights = pack("Qiiix4", 20, SOL_SOCKET, 1, $fd);
my $message = pack("QLx4PQPQix4", 0, 0, $iov, 1, $rights, 24, 0);
syscall(%d, fileno($s), $message, 0) == 1 or die "sendmsg: $!"; print "passed"`, unix.SYS_MEMFD_CREATE, unix.SYS_SENDMSG)

// TestLeftMemory: a job cannot gather memory without bound from jobs that have ended: each of these counts as a running
// one until its memory is free.
func TestLeftMemory(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const most = 6
	for _, kind := range []string{"jobs", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			f := newFront(t, func(c *Config) { c.MaxPerUser = most })
			// Nobody accepts the connections, so the descriptors stay in the kernel's queue.
			holder, err := f.Start(f.Spec("perl", "-e", `use Socket; $| = 1; socket(my $s, PF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("s")) or die $!;
				listen($s, 100); print "listens\n"; <STDIN>`))
			if err != nil {
				t.Fatal(err)
			}
			holder.Until("listens\n")
			pass := func() string {
				spec := f.Spec("perl", "-e", passOn)
				if kind == "sessions" {
					ss := f.Session(job.SessionSpec{Repo: f.Repo, Disk: 32 << 20})
					defer f.CloseSession(ss, false)
					spec.Session = ss.ID
				}
				d, err := f.Try(spec)
				if err != nil {
					return err.Error()
				}
				return d.Out + d.Err
			}
			for n := range most - 1 {
				if said := pass(); said != "passed" {
					t.Fatal(said)
				}
				f.awaitLeft(n + 1)
			}
			want := fmt.Sprintf("%d jobs are running, which is the maximum per user; %d of them have ended", most, most-1)
			if said := pass(); !strings.Contains(said, want) {
				t.Errorf("%q, want %q", said, want)
			}
			holder.In.Close()
			if _, err := holder.End(); err != nil {
				t.Error(err)
			}
			f.awaitLeft(0)
			if said := pass(); strings.Contains(said, "running") {
				t.Error(said)
			}
		})
	}
}

// awaitLeft waits until n ended jobs count because of their memory.
func (f *front) awaitLeft(n int) {
	f.T.Helper()
	eventually(f.T, func() string {
		f.s.jobs.mu.Lock()
		defer f.s.jobs.mu.Unlock()
		if is := f.s.jobs.leftAll; is != n {
			return fmt.Sprintf("%d ended jobs count, not %d", is, n)
		}
		return ""
	})
	if f.T.Failed() {
		f.T.FailNow()
	}
}
