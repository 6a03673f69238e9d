package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A load is many concurrent calls of several agents. The job of each call writes a file into the repository, and a word to
// its output.
type load struct {
	agents   []*agent
	answered atomic.Int32
	mu       sync.Mutex
	outcomes map[string]outcome // guarded by mu, by the job's word
}

// run makes the calls of all agents concurrently, and calls strike once after of them are answered. It returns when each call
// has its outcome.
func (l *load) run(calls, after int, strike func()) {
	l.outcomes = map[string]outcome{}
	var all sync.WaitGroup
	var once sync.Once
	for i, a := range l.agents {
		for n := range calls {
			all.Go(func() {
				word := fmt.Sprintf("word-%d-%d", i, n)
				o := a.shell("touch ran-%[1]s; echo %[1]s", word)
				l.mu.Lock()
				l.outcomes[word] = o
				l.mu.Unlock()
				if int(l.answered.Add(1)) >= after {
					once.Do(strike)
				}
			})
		}
	}
	all.Wait()
}

func (h *host) load(t *testing.T, config string) *load {
	t.Helper()
	l := &load{}
	for range 4 {
		l.agents = append(l.agents, h.agent(t, config))
	}
	return l
}

// kept checks the promises of answers: the output of each handle can be read, from another front-end as well, and the audit
// log has the call. It returns the number of handles.
func (h *host) kept(t *testing.T, config string, outcomes map[string]outcome) int {
	t.Helper()
	reader := h.agent(t, config)
	decided := map[string]bool{}
	for _, r := range h.records(t) {
		decided[r.Claimed.Artifact] = true
	}
	n := 0
	for word, o := range outcomes {
		if o.ArtifactHandle == nil {
			continue
		}
		n++
		if found := reader.find(*o.ArtifactHandle, word); found.err != nil || found.IsError || found.MatchStatus != "matched" {
			t.Errorf("%s was promised and is not there: %+v", *o.ArtifactHandle, found)
		}
		if !decided[*o.ArtifactHandle] {
			t.Errorf("%s is not in the audit log", *o.ArtifactHandle)
		}
	}
	return n
}

// A record is a line of the audit log.
type record struct {
	Seq     uint64
	Event   string
	Of      uint64
	Claimed struct{ Artifact string }
}

// records reads the audit log, in which every line must be whole.
func (h *host) records(t *testing.T) []record {
	t.Helper()
	// The supervisor may see another file system there.
	dir := filepath.Join(fmt.Sprintf("/proc/%d/root", h.daemon.PID()), h.daemon.State, "audit")
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no audit log in %s: %v", dir, err)
	}
	var all []record
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(bytes.TrimRight(b, "\x00"))) // allocated but not yet written
		for lines.Scan() {
			var r record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%v: %q", err, lines.Text())
			}
			all = append(all, r)
		}
	}
	return all
}

// audited checks the chain of the audit log, and that each decided job has finished. No job must be running.
func (h *host) audited(t *testing.T) {
	t.Helper()
	open := map[uint64]bool{}
	sandboxtest.Eventually(t, time.Minute, "every decided job has its end in the audit log", func() bool {
		clear(open)
		for _, r := range h.records(t) {
			switch r.Event {
			case "decided":
				open[r.Seq] = true
			case "finished", "lost":
				if !open[r.Of] {
					t.Errorf("record %d ends %d, which is not open", r.Seq, r.Of)
				}
				delete(open, r.Of)
			}
		}
		return len(open) == 0
	})
	out, err := exec.Command("nsenter", "--mount", fmt.Sprintf("--target=%d", h.daemon.PID()),
		sandboxtest.Bin(t, "corral"), "audit", "verify", "--state", h.daemon.State).CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v: %s", err, out)
	}
}

// busy is a configuration under which calls wait for each other instead of being denied.
func (h *host) busy(t *testing.T) string {
	return h.configure(t, "busy", "runtime: {max_concurrent_jobs: 8, queue_wait: 5m, queue_length: 1000}\n")
}

// TestKilled: during two hundred calls of four clients, one of the processes involved is killed. All other calls succeed,
// nothing that was promised is lost, and the audit log is complete.
func TestKilled(t *testing.T) {
	tests := []struct {
		name   string
		strike func(t *testing.T, h *host, l *load)
		// spared reports whether a call must have succeeded.
		spared func(word string) bool
	}{
		{"client", func(_ *testing.T, _ *host, l *load) { l.agents[0].vanish() }, notOfFirst},
		{"corral", func(_ *testing.T, _ *host, l *load) { _ = l.agents[0].cmd.Process.Kill() }, notOfFirst},
		{"corrald", func(_ *testing.T, h *host, _ *load) { h.daemon.Kill() }, func(string) bool { return false }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			config := h.busy(t)
			l := h.load(t, config)
			calls := max(5, sandboxtest.Scale(50))
			after := 1 + rand.IntN(3*calls) // some are always left
			t.Logf("killed after %d answers", after)
			l.run(calls, after, func() { tt.strike(t, h, l) })
			if tt.name == "corrald" {
				h.daemon.Start(t)
			}
			for word, o := range l.outcomes {
				if tt.spared(word) && (o.err != nil || o.Status != "success") {
					t.Errorf("%s: %+v", word, o)
				}
			}
			for _, a := range l.agents {
				if n := a.surplus.Load(); n != 0 {
					t.Errorf("%d answers that nobody waited for", n)
				}
			}
			if n := h.kept(t, config, l.outcomes); n == 0 {
				t.Error("nothing was promised")
			}
			h.audited(t)
			if o := h.agent(t, config).shell("echo again"); o.err != nil || o.Status != "success" {
				t.Errorf("afterwards: %+v", o)
			}
		})
	}
}

func notOfFirst(word string) bool { return !strings.HasPrefix(word, "word-0-") }

// small runs a command in a mount namespace of its own, in which dir is a small file system that belongs to a user.
func small(dir, size string, uid int) []string {
	return []string{"unshare", "--mount", "sh", "-c", fmt.Sprintf(
		`mount -t tmpfs -o size=%s,mode=0755,uid=%d,gid=%d corral-test "$0" && exec "$@"`, size, uid, uid), dir}
}

// TestArtifactsFull: when there is no space for output, jobs still run, the reply says that and why the output was not
// stored, and older output can still be read.
func TestArtifactsFull(t *testing.T) {
	h := newHost(t)
	config := h.busy(t)
	a := h.agent(t, config, small(h.state, "3m", alice)...)
	outcomes := map[string]outcome{}
	lost := 0
	for n := range 20 {
		word := fmt.Sprintf("word-%d", n)
		o := a.shell("echo %s; head -c 300000 /dev/urandom | base64", word)
		if o.err != nil || o.Status != "success" {
			t.Fatalf("%s: %+v", word, o)
		}
		outcomes[word] = o
		if o.ArtifactHandle == nil {
			lost++
			if o.ArtifactReason == "" {
				t.Errorf("%s: no reason", word)
			}
		}
	}
	if lost == 0 || lost == len(outcomes) {
		t.Fatalf("of %d, %d were not kept", len(outcomes), lost)
	}
	for word, o := range outcomes {
		if o.ArtifactHandle == nil {
			continue
		}
		if found := a.find(*o.ArtifactHandle, word); found.err != nil || found.IsError || found.MatchStatus != "matched" {
			t.Errorf("%s was promised and is not there: %+v", *o.ArtifactHandle, found)
		}
	}
	h.audited(t)
}

// TestAuditFull: when there is no space for the audit log, no job runs; each job that ran has both of its records; and once
// there is space, jobs run again.
func TestAuditFull(t *testing.T) {
	h := newHost(t)
	h.daemon.Stop(t)
	h.daemon.Wrapper = small(h.daemon.State, "256k", 0)
	h.daemon.Start(t)
	config := h.busy(t)
	a := h.agent(t, config)
	ran, refused := 0, 0
	for n := 0; refused < 5 && n < 2000; n++ {
		o := a.shell("touch ran-%d", n)
		_, err := os.Stat(filepath.Join(h.repo, fmt.Sprintf("ran-%d", n)))
		switch {
		case o.err != nil:
			t.Fatal(o.err)
		case o.IsError && errors.Is(err, fs.ErrNotExist):
			refused++
		case o.Status == "success" && err == nil && refused == 0:
			ran++
		default:
			t.Fatalf("call %d: %+v, and its file: %v", n, o, err)
		}
	}
	if ran == 0 || refused == 0 {
		t.Fatalf("%d ran, %d were refused", ran, refused)
	}
	h.audited(t)
	finished := 0
	for _, r := range h.records(t) {
		if r.Event == "finished" {
			finished++
		}
	}
	if finished != ran {
		t.Errorf("%d ran, %d have their end in the log", ran, finished)
	}
	if out, err := exec.Command("nsenter", "--mount", fmt.Sprintf("--target=%d", h.daemon.PID()),
		"mount", "-o", "remount,size=16m", h.daemon.State).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if o := a.shell("echo again"); o.err != nil || o.Status != "success" {
		t.Errorf("with room: %+v", o)
	}
	h.audited(t)
}
