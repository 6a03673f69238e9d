package isolate

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// layeredNames defines renewed, which returns a descriptor of a directory with many names in the repository and few in the session's layer,
// for which the kernel makes a list of its own, because the directory changed since the last one. once reads a name of a directory.
var layeredNames = fmt.Sprintf(`
use Socket; $| = 1; our @kept; my $b = "\0" x 24;
sub once { sysopen(my $d, shift, 0) or die "open: $!"; syscall(%d, fileno($d), $b, 24) > 0 or die "getdents64: $!"; $d }
sub renewed { open(my $f, ">", "big/x") or die "big/x: $!"; close $f; unlink "big/x" or die; once("big") }
sub pass { my $s = shift; my @fds = map { fileno $_ } @_; my $x = "x"; my $v = pack("PQ", $x, 1);
	my $c = pack("QllI*", 16 + 4 * @fds, 1, 1, @fds); my $m = pack("QLx4PQPQlx4", 0, 0, $v, 1, $c, length $c, 0);
	syscall(%d, fileno($s), $m, 0) == 1 or die "sendmsg: $!" }
`, unix.SYS_GETDENTS64, unix.SYS_SENDMSG)

// TestKernelMemoryLayers: a job in a session with a layer cannot make the kernel hold names of the repository's directories in lists that
// no cgroup is charged for, even if nothing about the directories shows how many: not with descriptors that it has, and not with
// descriptors queued in a socket that is queued itself. A job that has more directories of both open,
// but with few names in them, is not ended.
func TestKernelMemoryLayers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const names, lists, open, changed = 25_000, 100, 115, 105 // 31 MiB by estimate
	f := newFront(t)
	fronttest.Shell(t, f.Repo, fmt.Sprintf(
		`mkdir big small; cd big; touch 1; perl -e 'for (2..%d) { link(1, $_) or die "link: $!" }'; cd ../small; seq %d | xargs mkdir; cd ..`, names, open))
	for name, code := range map[string]string{
		"descriptors": "push @kept, renewed() for 1..%d",
		"queued": `socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die "socketpair: $!"; push @kept, $a, $b;
			for (1..%d / 25) { socketpair(my $c, my $d, AF_UNIX, SOCK_STREAM, 0) or die; pass($c, map { renewed() } 1..25); pass($a, $d) }`,
	} {
		t.Run(name, func(t *testing.T) {
			f := frontOf(t, f.s, f.C, f.Repo)
			start := func(script string) *live {
				ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
				spec := f.Spec("perl", "-e", layeredNames+script)
				spec.Session, spec.Workspace = ss.ID, ss.Workspace
				spec.Limits = job.Limits{Wall: sandboxtest.Slow(time.Minute)}
				l, err := f.Start(spec)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			few := start(fmt.Sprintf(`for (1..%d) { open(my $f, ">", "small/$_/x") or die "x: $!" }
				push @kept, once("small/$_") for 1..%d; print "held\n"; <STDIN>`, changed, open))
			few.Until("held\n")
			many := start(fmt.Sprintf(code, lists) + `; print "held\n"; sleep 1000`)
			if d, err := many.End(); err != nil || d.Limit != job.LimitMemory || d.Status != job.Failure {
				t.Errorf("%+v %q %s %v", d.Result, d.Out, d.Err, err)
			}
			_, ended := few.In.WriteString("\n") // an error says that it was ended before
			if d, err := few.End(); err != nil || ended != nil || d.Status != job.Success {
				t.Errorf("the job with directories of the repository: %+v %s %v, %v", d.Result, d.Err, err, ended)
			}
		})
	}
}
