package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// takeLocks defines take(n), which takes n one-byte locks with gaps between them. Each file gets few locks, because
// the kernel walks a file's locks for each new one.
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

// TestLocks: a job cannot fill kernel memory with locks, which no cgroup is charged for, and a job with a few is not
// affected.
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
	const most = 2_000_000 // 400 MB, were there no limit
	for name, script := range map[string]string{
		"one process": `take(` + strconv.Itoa(most) + `); print "survived"`,
		// The locks belong to the descriptor table that the first process shares, and to no process that is alive.
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
		t.Errorf("the job with few locks: %+v %v", d.Result, err)
	}
}

// Parts of Python programs: what threads do whose descriptors are not those in /proc/PID/fd.
var (
	// endLeader ends the first thread of the process, and the others go on.
	endLeader = fmt.Sprintf(`
def in_thread(f):
    threading.Thread(target=f).start()
    ctypes.CDLL(None).syscall(%d, 0)
def leader_ended():
    while ") Z" not in open("/proc/%%d/stat" %% os.getpid()).read(): time.sleep(0.001)
`, unix.SYS_EXIT)

	// ownTable gives the calling thread a descriptor table of its own, as clone(2) without CLONE_FILES does, and leaves the standard streams.
	ownTable = fmt.Sprintf(`
def own_table():
    if ctypes.CDLL(None).syscall(%d, 1000, 1000, 2): raise OSError("close_range")
`, unix.SYS_CLOSE_RANGE)
)

// TestLocksOfThreads: locks count whatever thread of a process has the descriptor table that they belong to.
func TestLocksOfThreads(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3")) // of a Python that is whole
	if _, err := countLockRecords(); err != nil {
		t.Skip(err)
	}
	f := newFront(t)
	for name, code := range map[string]string{
		"few locks": `
take(5000)
for n in range(50): threading.Thread(target=time.sleep, args=(1000,)).start()
hold()`,
		"the first thread has ended": `
def work(): leader_ended(); take(12000); hold()
in_thread(work)`,
		"a thread with its own table": `
def work(): own_table(); take(12000); hold()
threading.Thread(target=work).start()`,
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.spec("python3", "-c", python+endLeader+ownTable+`
import fcntl, threading, time
def take(locks):
    global kept
    kept = [open("/tmp/%d" % n, "w") for n in range(locks // 500)]
    for file in kept:
        for at in range(500): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
def hold():
    print("taken", flush=True); sys.stdin.read(); os._exit(0)
`+code)
			l, err := f.start(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.until("taken\n")
			w := &f.s.locks
			w.mu.Lock()
			w.base = -2 * manyLocks // as if the host had as many more since
			w.mu.Unlock()
			eventually(t, func() string {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.base < 0 && len(w.watched) > 0 {
					return "no look found the job blameless, or ended it"
				}
				return ""
			})
			want := job.LimitMemory
			if name == "few locks" {
				want = ""
			}
			if d, err := l.end(); err != nil || d.Limit != want {
				t.Errorf("%+v %v %s, want limit %q", d.Result, err, d.err, want)
			}
		})
	}
}

// A fakeGroup is a cgroup whose processes are given. If stuck is set, nothing is known about them until it is closed.
type fakeGroup struct {
	pids   []int
	frozen bool
	stuck  <-chan struct{}
}

func (g fakeGroup) Freeze() (func(), bool) { return func() {}, g.frozen }

func (g fakeGroup) PIDs() ([]int, error) {
	if g.stuck != nil {
		<-g.stuck
		return nil, errors.New("killed")
	}
	return g.pids, nil
}

// TestTablesStuck: a job that cannot be read in time is ended, which is what lets the read return, and delays the look at no other.
func TestTablesStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*lockHolder
		for range 3 {
			r := &run{endHandled: make(chan struct{})}
			all = append(all, &lockHolder{group: fakeGroup{frozen: true, stuck: r.endHandled}, run: r})
		}
		begin := time.Now()
		if checkAll(all) || !all[0].over || time.Since(begin) != tablesPatience {
			t.Errorf("after %v: %+v", time.Since(begin), all[0].run.outcome)
		}

		r := &run{endHandled: make(chan struct{}), limits: job.Limits{Disk: 1, Inodes: job.Unlimited}}
		w := &diskWatch{group: fakeGroup{frozen: true, stuck: r.endHandled}, run: r}
		begin = time.Now()
		w.confirm()
		if r.outcome != wire.OverDisk || time.Since(begin) != tablesPatience {
			t.Errorf("the disk watch, after %v: %v", time.Since(begin), r.outcome)
		}
	})
}

// TestLocksUnread: as long as a job could not be read in full, a look does not take the host's locks for those of others.
func TestLocksUnread(t *testing.T) {
	n, err := countLockRecords()
	if err != nil {
		t.Skip(err)
	}
	for _, frozen := range []bool{true, false} {
		const low = -2 * manyLocks
		h := &lockHolder{group: fakeGroup{pids: []int{os.Getpid()}, frozen: frozen}, run: &run{limits: job.Limits{PIDs: 1000}, endHandled: make(chan struct{})}}
		w := &lockWatch{watched: map[*lockHolder]bool{h: true}, timer: time.NewTimer(time.Hour), base: low}
		w.look()
		w.timer.Stop()
		if h.over || (w.base != low) != frozen {
			t.Errorf("frozen %t: ended %t, from %d to %d with %d records", frozen, h.over, low, w.base, n)
		}
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
		if got, err := locksIn(path, c.most); got != c.want || err != nil {
			t.Errorf("%q: %d, %v, want %d", c.text, got, err, c.want)
		}
	}
	if got, err := locksIn(filepath.Join(t.TempDir(), "none"), 5); got != 0 || err != nil {
		t.Errorf("of a process that has ended: %d, %v", got, err)
	}
	if _, err := locksIn(t.TempDir(), 5); err == nil {
		t.Error("what cannot be read has no locks")
	}
}
