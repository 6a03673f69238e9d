package isolate

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// A holding is something that makes the kernel hold memory which no cgroup is charged for. hold(n) of code holds about n units.
type holding struct {
	name      string
	code      string
	few, many int // units: far below the limit, and enough to be over it; together at most 200 MB
}

var holdings = []holding{
	{"replies to netlink requests", `
sub hold { for (1..shift) { socket(my $s, 16, SOCK_RAW, 0) or die "socket: $!"; push @kept, $s;
	my $ask = pack("LSSLLCx3", 20, 18, 1, 1, 0, 0); send($s, $ask, 64) for 1..400 } }`, 10, 800},
	{"connections that nobody accepts", `
sub hold { my $n = shift; listener(); while ($n-- > 0) { listener() if $n % 1000 == 999; my $c = connected() } }`, 100, 30_000},
	{"data in connections that nobody accepts", `
sub hold { listener(); for (1..shift) { my $c = connected(); send($c, "x" x 65536, 64) } }`, 10, 2000},
	{"data in accepted connections", `
sub hold { for (1..shift) { listener(); my $c = connected(); accept(my $a, $s); push @kept, $a, $c;
	setsockopt($c, SOL_SOCKET, SO_SNDBUF, 1 << 20); for (1..1000) { send($c, "x" x 65536, 64) or last } } }`, 2, 110},
	{"errors of UDP sockets", `
sub hold { for (1..shift) { socket(my $s, PF_INET, SOCK_DGRAM, 0) or die; push @kept, $s; setsockopt($s, 0, 11, 1) or die "IP_RECVERR: $!";
	send($s, "x" x 1000, 64, sockaddr_in(9, INADDR_LOOPBACK)) for 1..300 } }`, 10, 800},
	{"members of multicast groups", `
sub hold { for (1..shift) { socket(my $s, PF_INET6, SOCK_DGRAM, 0) or die; push @kept, $s;
	for (1..200) { setsockopt($s, 41, 20, pack("CCx10NL", 0xff, 2, $_, 1)) or die "IPV6_JOIN_GROUP: $!" } } }`, 10, 3900},
	{"names of directories", fmt.Sprintf(`
sub hold { mkdir "many" and do { for (1..400) { open(my $f, ">", "many/$_") or die } }; my $b = "\0" x 24;
	for (1..shift) { sysopen(my $d, "many", 0) or die "open: $!"; push @kept, $d; syscall(%d, fileno($d), $b, 24) > 0 or die "getdents64: $!" } }`,
		unix.SYS_GETDENTS64), 10, 3900},
	{"files that tasks wait for", fmt.Sprintf(`
sub hold { pipe(my $r, my $w); push @kept, $r, $w; my $b = pack("LSS", fileno($r), 1, 0) x 4000;
	for (1..shift) { fork or do { syscall(%d, $b, 4000, 0, 0, 0); exit } } }`, unix.SYS_PPOLL), 10, 700},
	{"filters", fmt.Sprintf(`
sub hold { my $n = shift; my $code = pack("SCCL", 0x06, 0, 0, 0x7fff0000); $code = pack("SCCL", 0xa4, 0, 0, 0x12345678) x 4095 . $code;
	my $program = pack("Sx6P", 4096, $code); pipe(my $r, my $w);
	for (1..$n / 6) { if (!fork) { for (1..6) { syscall(%d, 1, 0, $program) == 0 or die "seccomp: $!" } syswrite($w, "x"); sleep 1000 } }
	sysread($r, my $b, 1) for 1..$n / 6 }`, unix.SYS_SECCOMP), 12, 1800},
}

// holdPrelude defines connected, which returns a socket connected to the one that listener has made.
const holdPrelude = `
use Socket; $| = 1; our (@kept, $s);
sub listener { undef $s; socket($s, PF_INET, SOCK_STREAM, 0) or die; bind($s, sockaddr_in(0, INADDR_LOOPBACK)) or die; listen($s, 4096) or die; push @kept, $s }
sub connected { socket(my $c, PF_INET, SOCK_STREAM, 0) or die; connect($c, getsockname($s)) or die "connect: $!"; $c }
`

// TestKernelMemory: a job cannot fill the kernel's memory with what no cgroup is charged for, and a job with a little of it is not
// affected. The memory of the host shows that the job held some.
func TestKernelMemory(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	all := newFront(t)
	all.s.kernel.Growth = 1 << 20 // what a job holds must show beside memory that jobs of other tests release meanwhile
	for _, h := range holdings {
		t.Run(h.name, func(t *testing.T) {
			f := frontOf(t, all.s, all.C, all.Repo)
			few, err := f.Start(f.Spec("perl", "-e", holdPrelude+h.code+"hold("+strconv.Itoa(h.few)+`); print "held\n"; <STDIN>`))
			if err != nil {
				t.Fatal(err)
			}
			few.Until("held\n")
			spec := f.Spec("perl", "-e", holdPrelude+h.code+"hold("+strconv.Itoa(h.many)+`); print "held\n"; sleep 1000`)
			spec.Limits = job.Limits{Wall: sandboxtest.Slow(time.Minute), PIDs: 1000}
			many, err := f.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			d, err := many.End()
			if err != nil || d.Limit != job.LimitMemory || d.Status != job.Failure {
				t.Errorf("%+v %q %s %v", d.Result, d.Out, d.Err, err)
			}
			if _, err := few.In.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			if d, err := few.End(); err != nil || d.Status != job.Success {
				t.Errorf("the job with little: %+v %s %v", d.Result, d.Err, err)
			}
		})
	}
}

// TestKernelMemoryKnown: this host reports the kernel's memory, without which the supervisor could only look at each job all the time.
func TestKernelMemoryKnown(t *testing.T) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil || !bytes.Contains(b, []byte("\nSUnreclaim:")) || !bytes.Contains(b, []byte("\nVmallocUsed:")) {
		t.Errorf("%v\n%s", err, b)
	}
}
