package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// takeLocks defines take(n), which takes n one-byte locks with gaps between them. Each file gets few locks, because
// the kernel walks a file's locks for each new one.
const takeLocks = `
use Fcntl; $| = 1;
my $name = 0;
sub take {
	for (my $n = shift; $n > 0; $n -= 200) {
		open(my $f, "+>", "/tmp/" . $name++) or die "open: $!"; push @kept, $f;
		for my $at (1..200) { fcntl($f, F_SETLK, pack("s s x4 q q l x4", F_WRLCK, 0, 2*$at, 1, 0)) or die "lock: $!" }
	}
}
`

// TestLocks: a job cannot fill kernel memory with locks, which no cgroup is charged for, and a job with a few is not
// affected.
func TestLocks(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	before, err := hostLocks()
	if err != nil {
		t.Skip(err)
	}
	f := sharedFront(t)
	few, err := f.Start(f.Spec("perl", "-e", takeLocks+`take(20_000); print "taken\n"; <STDIN>`))
	if err != nil {
		t.Fatal(err)
	}
	few.Until("taken\n")
	for name, script := range map[string]string{
		"one process": `take(400_000); print "taken"; sleep 1000`, // 80 MB
		// The locks belong to the descriptor table that the first process shares, and to no process that is alive.
		"processes that are gone": fmt.Sprintf(`for (1..80) { my $p = syscall(%d, %d, 0, 0, 0, 0); `+
			`if (!$p) { $name = $_ * 100; take(5000); syscall(%d, 0) } waitpid($p, 0) } sleep 1000`,
			unix.SYS_CLONE, unix.CLONE_FILES|int(unix.SIGCHLD), unix.SYS_EXIT_GROUP),
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.Spec("perl", "-e", takeLocks+script)
			spec.Limits = job.Limits{Wall: sandboxtest.Slow(time.Minute)}
			d := f.Run(spec)
			if d.Limit != job.LimitLocks || d.Status != job.Failure {
				t.Errorf("%+v %q %s", d.Result, d.Out, d.Err)
			}
			eventually(t, func() string {
				if n, _ := hostLocks(); n > before+(1<<18) {
					return "there are " + strconv.Itoa(n) + " lock records, " + strconv.Itoa(before) + " before"
				}
				return ""
			})
		})
	}
	if _, err := few.In.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if d, err := few.End(); err != nil || d.Status != job.Success {
		t.Errorf("the job with few locks: %+v %v", d.Result, err)
	}
}

// TestLocksNotCharged: this kernel charges record locks to no cgroup. On one that does, the memory limit bounds them, and no watch is needed.
func TestLocksNotCharged(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	const locks, lockBytes = 60_000, 192
	f := sharedFront(t)
	peak := func(script string) int64 {
		d := f.Run(f.Spec("perl", "-e", takeLocks+script))
		if d.Status != job.Success {
			t.Fatalf("%+v %s", d.Result, d.Err)
		}
		return d.Usage.PeakMemory
	}
	files := peak(fmt.Sprintf(`for (1..%d / 200) { open(my $f, "+>", "/tmp/$_") or die; push @kept, $f }`, locks))
	if locked := peak(fmt.Sprintf("take(%d)", locks)); locked-files > locks*lockBytes/2 {
		t.Errorf("%d locks take %d bytes of the job's memory, the same files without any %d", locks, locked, files)
	}
}

// hostLocks returns the number of lock records of the host.
func hostLocks() (int, error) {
	b, err := os.ReadFile("/sys/kernel/slab/file_lock_cache/total_objects")
	if err != nil {
		return 0, err
	}
	word, _, _ := strings.Cut(string(b), " ")
	return strconv.Atoi(strings.TrimSpace(word))
}
