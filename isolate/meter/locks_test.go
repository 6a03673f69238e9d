package meter

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corral/internal/test/sandboxtest"
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
def work(): leader_ended(); take(120_000); hold()
in_thread(work)`,
		"a thread with its own table": `
def work(): own_table(); take(120_000); hold()
threading.Thread(target=work).start()`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("python3", "-c", sandboxtest.Python+sandboxtest.EndLeader+sandboxtest.OwnTable+`
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
			ended := make(chan struct{})
			stop := w.Watch(processes{cmd.Process.Pid}, sync.OnceFunc(func() { close(ended) }))
			defer stop()
			w.mu.Lock()
			w.base = -2 * ManyLocks // as if the host had as many more since
			w.mu.Unlock()
			over := false
			eventually(t, func() string {
				w.mu.Lock()
				defer w.mu.Unlock()
				select {
				case <-ended:
					over = true
				default:
				}
				if !over && w.base < 0 {
					return "no look found few locks, or ended the job"
				}
				return ""
			})
			if want := name != "few locks"; over != want {
				t.Errorf("ended: %t, want %t", over, want)
			}
		})
	}
}

// processes are a cgroup's.
type processes []int

func (p processes) PIDs() ([]int, error) { return p, nil }

// A stuckGroup is the cgroup of a job that cannot be read until it has ended.
type stuckGroup <-chan struct{}

func (g stuckGroup) PIDs() ([]int, error) {
	<-g
	return nil, os.ErrProcessDone
}

// TestLocksStuck: a job that cannot be read in time is not ended, keeps others from being read for a moment at most, and is not read
// by two looks at once.
func TestLocksStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		ended := func() { t.Error("a job was ended") }
		stuck := &lockHolder{group: stuckGroup(over), end: ended}
		few := &lockHolder{group: processes{os.Getpid()}, end: ended}
		for range 2 {
			begin := time.Now()
			if allHaveFew([]*lockHolder{stuck, few}) || time.Since(begin) > locksPatience {
				t.Errorf("after %v", time.Since(begin))
			}
		}
		close(over)
		synctest.Wait()
		if !allHaveFew([]*lockHolder{few}) {
			t.Error("the other job was not read")
		}
	})
}

// TestLocksUnread: as long as a job could not be read in full, a look does not take the host's locks for those of others.
func TestLocksUnread(t *testing.T) {
	n, err := countLockRecords()
	if err != nil {
		t.Skip(err)
	}
	over := make(chan struct{})
	close(over)
	for _, group := range []Group{processes{os.Getpid()}, stuckGroup(over)} {
		const low = -2 * ManyLocks
		_, read := group.(processes)
		h := &lockHolder{group: group, end: func() { t.Error("a job was ended") }}
		w := &LockWatch{watched: map[*lockHolder]bool{h: true}, timer: time.NewTimer(time.Hour), base: low}
		w.look()
		w.timer.Stop()
		if (w.base != low) != read {
			t.Errorf("read %t: from %d to %d with %d records", read, low, w.base, n)
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
