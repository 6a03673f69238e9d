package isolate

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// An honest job does something that makes the kernel hold memory, and prints "held". churn, if not nil, makes the kernel hold memory outside
// of all jails meanwhile. What the job does afterwards lasts several looks of a watch that looks four times a second.
var honest = []struct {
	name, code string
	limits     job.Limits
	churn      func(t *testing.T)
}{
	{name: "connections closed with unread data", limits: job.Limits{Memory: 2 << 30}, code: `
		use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0); bind($s, sockaddr_in(0, INADDR_LOOPBACK)) && listen($s, 5) or die;
		for (1..5) { socket(my $c, PF_INET, SOCK_STREAM, 0); setsockopt($c, SOL_SOCKET, SO_SNDBUF, 8 << 20);
			connect($c, getsockname($s)) or die "connect: $!"; accept(my $a, $s); push @kept, $a;
			for (1..57) { defined send($c, "x" x 65536, 64) or last } close $c }`},
	{name: "descriptors of many processes", limits: job.Limits{Memory: 6 << 30, PIDs: 2000}, code: `
		use Socket; for (1..20) { socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die; push @kept, $a, $b }
		pipe(my $r, my $w); for (1..1600) { fork // die "fork: $!" or do { close $w; sysread($r, my $x, 1); exit } } push @kept, $w;`},
	{name: "one open directory", churn: openDirectories, code: fmt.Sprintf(`
		open(my $f, ">", "dir/x") or die "dir/x: $!"; sysopen(my $d, "dir", 0) or die; push @kept, $d; my $b = "\0" x 24;
		syscall(%d, fileno($d), $b, 24) > 0 or die "getdents64: $!";`, unix.SYS_GETDENTS64)},
}

// TestKernelMemoryEndsNoJob: a job is not ended for memory of the kernel that it does not use, nor for what others make the kernel hold.
func TestKernelMemoryEndsNoJob(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	for _, h := range honest {
		t.Run(h.name, func(t *testing.T) {
			f := newFront(t)
			fronttest.Shell(t, f.Repo, "mkdir dir; touch dir/1")
			spec := f.Spec("perl", "-e", `$| = 1; our @kept;`+h.code+`print "held\n"; <STDIN>; select undef, undef, undef, 2; print "done"`)
			ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
			spec.Session, spec.Workspace, spec.Limits = ss.ID, ss.Workspace, h.limits
			l, err := f.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Until("held\n")
			if h.churn != nil {
				h.churn(t)
			}
			_, _ = l.In.WriteString("\n") // an error shows in the result
			if d, err := l.End(); err != nil || d.Status != job.Success || d.Limit != "" || d.Out != "held\ndone" {
				t.Errorf("%+v %q %s %v", d.Result, d.Out, d.Err, err)
			}
		})
	}
}

// openDirectories opens a directory 16,000 times and reads one name of each: on ext4 the kernel then holds names of a block for each, more
// than 256 MB in all.
func openDirectories(t *testing.T) {
	const times, names = 16_000, 2000
	dir := t.TempDir()
	for i := range names {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range times {
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		if _, err := unix.Getdents(int(d.Fd()), make([]byte, 24)); err != nil {
			t.Fatal(err)
		}
	}
}
