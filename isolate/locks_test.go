package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/sandboxtest"
	"corral/job"
)

// takeLocks has take: so many one-byte locks with gaps between them, in files with few each, for the kernel looks through a
// file's locks for each new one.
const takeLocks = `
use Fcntl; $| = 1;
my $name = 0;
sub take {
	for (my $n = shift; $n > 0; $n -= 500) {
		open(my $f, "+>", "/tmp/" . $name++) or die "open: $!"; push @kept, $f;
		for my $at (1..500) { fcntl($f, F_SETLK, pack("s s x4 q q l x4", F_WRLCK, 0, 2*$at, 1, 0)) or die "lock: $!" }
	}
}
`

// TestLocks: a job cannot fill the kernel with locks, which no cgroup is charged for, and one that has some is left alone.
func TestLocks(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	before, err := countLockRecords()
	if err != nil {
		t.Skip(err)
	}
	f := newFront(t)
	few, err := f.start(f.spec("perl", "-e", takeLocks+`take(5000); print "taken\n"; <STDIN>`))
	if err != nil {
		t.Fatal(err)
	}
	few.until("taken\n")
	const most = 2_000_000 // were there no bound: 400 MB
	for name, script := range map[string]string{
		"one process": `take(` + strconv.Itoa(most) + `); print "survived"`,
		// The locks belong to the table of descriptors that the first process shares, and none to a process that is alive.
		"processes that are gone": fmt.Sprintf(`for (1..400) { my $p = syscall(%d, %d, 0, 0, 0, 0); `+
			`if (!$p) { $name = $_ * 100; take(5000); syscall(%d, 0) } waitpid($p, 0) } print "survived"`,
			unix.SYS_CLONE, unix.CLONE_FILES|int(unix.SIGCHLD), unix.SYS_EXIT_GROUP),
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.spec("perl", "-e", takeLocks+script)
			spec.Limits = job.Limits{Wall: sandboxtest.Slow(time.Minute)}
			d := f.run(spec)
			if d.Limit != job.LimitMemory || d.Status != job.Failure || d.out != "" {
				t.Errorf("%+v %q %s", d.Result, d.out, d.err)
			}
			eventually(t, func() string {
				if n, _ := countLockRecords(); n > before+manyLocks {
					return "there are " + strconv.Itoa(n) + " lock records, " + strconv.Itoa(before) + " before"
				}
				return ""
			})
		})
	}
	if _, err := few.in.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if d, err := few.end(); err != nil || d.Status != job.Success {
		t.Errorf("the job with few: %+v %v", d.Result, err)
	}
}

// TestLocksIn counts what a descriptor tells, of text that has the word elsewhere, too.
func TestLocksIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fdinfo")
	for _, c := range []struct {
		text       string
		most, want int
	}{
		{"", 5, 0},
		{"pos:\t0\nflags:\t0100002\nmnt_id:\t30\nino:\t5\n", 5, 0},
		{"pos:\t0\nlock:\t1: POSIX  ADVISORY  WRITE 5 00:1a:3 0 0\nlock:\t2: POSIX\n", 5, 2},
		{"path:\tlock: lock:\n", 5, 0},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := locksIn(path, c.most); got != c.want {
			t.Errorf("%q: %d, want %d", c.text, got, c.want)
		}
	}
	if got := locksIn(filepath.Join(t.TempDir(), "none"), 5); got != 0 {
		t.Errorf("of a process that has ended: %d", got)
	}
}
