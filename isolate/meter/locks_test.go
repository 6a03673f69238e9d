package meter

import (
	"bufio"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// TestLocksOfThreads: locks count whatever thread of a process has the descriptor table that they belong to.
func TestLocksOfThreads(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("pydoc3")) // of a Python that is whole
	if _, err := countLockRecords(); err != nil {
		t.Skip(err)
	}
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
			cmd := exec.Command("python3", "-c", isolatetest.Python+isolatetest.EndLeader+isolatetest.OwnTable+`
import fcntl, threading, time
def take(locks):
    global kept
    kept = [open("%d" % n, "w") for n in range(locks // 500)]
    for file in kept:
        for at in range(500): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
def hold():
    print("taken", flush=True); sys.stdin.read(); os._exit(0)
`+code)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				in.Close()
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed, or exits by itself
			}()
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "taken\n" {
				t.Fatalf("%q, %v", line, err)
			}
			var w LockWatch
			stop := w.Watch(fakeGroup{pids: []int{cmd.Process.Pid}, frozen: true}, 1000, func() {})
			w.mu.Lock()
			w.base = -2 * ManyLocks // as if the host had as many more since
			holder := slices.Collect(maps.Keys(w.watched))[0]
			w.mu.Unlock()
			eventually(t, func() string {
				w.mu.Lock()
				base := w.base
				w.mu.Unlock()
				holder.mu.Lock()
				defer holder.mu.Unlock()
				if base < 0 && !holder.over {
					return "no look found the job blameless, or ended it"
				}
				return ""
			})
			if over, want := stop(), name != "few locks"; over != want {
				t.Errorf("ended: %t, want %t", over, want)
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
			ended := make(chan struct{})
			all = append(all, &lockHolder{group: fakeGroup{frozen: true, stuck: ended}, target: target{end: sync.OnceFunc(func() { close(ended) })}})
		}
		begin := time.Now()
		if allBlameless(all, locksAtOnce, (*lockHolder).check) || !all[0].over || time.Since(begin) != tablesPatience {
			t.Errorf("after %v: ended %t", time.Since(begin), all[0].over)
		}

		var outcome wire.Outcome
		ended := make(chan struct{})
		w := &diskWatch{Disk: Disk{
			Group: fakeGroup{frozen: true, stuck: ended}, Limits: job.Limits{Disk: 1, Inodes: job.Unlimited},
			End: func(o wire.Outcome) {
				if outcome == 0 {
					outcome = o
					close(ended)
				}
			},
		}}
		begin = time.Now()
		w.confirm()
		if outcome != wire.OverDisk || time.Since(begin) != tablesPatience {
			t.Errorf("the disk watch, after %v: %v", time.Since(begin), outcome)
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
		const low = -2 * ManyLocks
		h := &lockHolder{group: fakeGroup{pids: []int{os.Getpid()}, frozen: frozen}, maxTasks: 1000, target: target{end: func() {}}}
		w := &LockWatch{poll: poll[*lockHolder]{watched: map[*lockHolder]bool{h: true}, timer: time.NewTimer(time.Hour)}, base: low}
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
