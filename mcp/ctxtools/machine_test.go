package ctxtools

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/store/artifact"
	"corral/store/index"
)

// A scriptRunner is a policy, runner and auditor whose jobs are scripts with one command per line: "out TEXT", "err TEXT",
// "exit N", "lines N", "meet", "hang", "deny", "file".
type scriptRunner struct {
	mu       sync.Mutex
	ran      []string           // guarded by mu: code of each job, in the order of start
	requests []*job.Request     // guarded by mu
	now      int                // guarded by mu: running jobs
	peak     int                // guarded by mu
	places   int                // maximum of concurrent jobs; 0 is unlimited
	meet     *sync.WaitGroup    // of "meet"
	files    map[string]string  // of "file"
	cancel   context.CancelFunc // of "cancel"
}

// Decide implements job.Policy. The code becomes the arguments.
func (m *scriptRunner) Decide(_ context.Context, r *job.Request) (job.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	code := ""
	if r.Code != nil {
		code = *r.Code
	}
	if code == "deny" {
		return job.Decision{Rule: "runtime.allowed", Reasons: []string{"no such thing here"}, Hash: mcptest.SomeHash}, nil
	}
	if code == readFile {
		code = "file " + *r.Env[pathVariable]
	}
	return job.Decision{Hash: mcptest.SomeHash, Spec: job.Spec{Args: []string{code}, Limits: r.Usual}}, nil
}

// Denied implements job.Auditor.
func (m *scriptRunner) Denied(context.Context, job.Claim, job.Spec) error { return nil }

// Run implements job.Runner.
func (m *scriptRunner) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	m.mu.Lock()
	m.ran = append(m.ran, spec.Args[0])
	m.now++
	m.peak = max(m.peak, m.now)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	r := job.Result{Status: job.Success}
	for line := range strings.SplitSeq(spec.Args[0], "\n") {
		word, rest, _ := strings.Cut(line, " ")
		m.step(ctx, word, rest, stdio, &r)
	}
	return r, nil
}

func (m *scriptRunner) step(ctx context.Context, word, rest string, stdio job.Stdio, r *job.Result) {
	switch word {
	case "out":
		_, _ = io.WriteString(stdio.Stdout, rest+"\n")
	case "err":
		_, _ = io.WriteString(stdio.Stderr, rest+"\n")
	case "lines":
		var n int
		_, _ = fmt.Sscan(rest, &n)
		for i := range n {
			_, _ = fmt.Fprintf(stdio.Stdout, "worker %d said that all was well at step %d\n", i%7, i+1)
		}
	case "exit":
		if _, _ = fmt.Sscan(rest, &r.ExitCode); r.ExitCode != 0 {
			r.Status = job.Failure
		}
	case "meet": // the jobs that meet must run at the same time
		m.meet.Done()
		m.meet.Wait()
	case "hang":
		<-ctx.Done()
		r.Status, r.ExitCode = job.Cancelled, -1
	case "cancel":
		m.cancel()
		<-ctx.Done()
		r.Status, r.ExitCode = job.Cancelled, -1
	case "late":
		r.Status, r.ExitCode = job.Timeout, -1
	case "file":
		text, ok := m.files[rest]
		if !ok {
			_, _ = io.WriteString(stdio.Stderr, "realpath: "+rest+": No such file or directory\n")
			r.Status, r.ExitCode = job.Failure, 1
		}
		_, _ = io.WriteString(stdio.Stdout, text)
	}
}

// realIndex returns an index in a temporary directory.
func realIndex(t *testing.T, o index.Options) *index.Index {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	x, err := index.Open(dir, o)
	dir.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// ctx returns a Suite with m as engine, a real store and a real index.
func (m *scriptRunner) ctx(t *testing.T) (*Suite, *artifact.Store) {
	t.Helper()
	s := mcptest.Store(t)
	x := New(Settings{
		Engine: &job.Engine{Policy: m, Runner: m, Auditor: m}, Outputs: s, Knowledge: realIndex(t, index.Options{}), Repos: []string{"app", "other"},
	})
	if m.places > 0 {
		x.Engine = &job.Engine{Policy: m, Runner: m, Auditor: m, Queue: job.NewQueue(m.places, 0, 0)}
	}
	t.Cleanup(x.Close)
	return x, s
}

// began returns the codes of the jobs in the order of start.
func (m *scriptRunner) began() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ran
}
