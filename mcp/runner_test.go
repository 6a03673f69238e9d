package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"corral/job"
	"corral/store/artifact"
)

// A fakeRunner is a policy, runner and auditor for a real job.Engine.
type fakeRunner struct {
	decision job.Decision
	result   job.Result
	err      error // returned by Run
	stdout   string
	stderr   string
	during   func(ctx context.Context) // called while the job runs
	anew     bool                      // the session replaces an expired one

	request *job.Request // last request
	spec    job.Spec     // last spec
	stdin   string
}

func (f *fakeRunner) Decide(_ context.Context, r *job.Request) (job.Decision, error) {
	f.request = r
	return f.decision, nil
}

func (f *fakeRunner) Denied(context.Context, job.Claim) error { return nil }

func (f *fakeRunner) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	f.spec = spec
	if stdio.Stdin != nil {
		b, _ := io.ReadAll(stdio.Stdin)
		f.stdin = string(b)
		stdio.Stdin.Close()
	}
	_, err := io.WriteString(stdio.Stdout, f.stdout)
	_, err2 := io.WriteString(stdio.Stderr, f.stderr)
	if f.during != nil {
		f.during(ctx)
	}
	stdio.Stdout.Close()
	stdio.Stderr.Close()
	return f.result, errors.Join(f.err, err, err2)
}

const someHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func newFakeRunner() *fakeRunner {
	return &fakeRunner{
		decision: job.Decision{Hash: someHash, Spec: job.Spec{Args: []string{"true"}}},
		result: job.Result{Status: job.Success, Usage: job.Usage{
			Wall: 1500 * time.Millisecond, CPU: 20 * time.Millisecond, PeakMemory: 4096, PeakPIDs: -1,
		}},
	}
}

// store returns a real store in a temporary directory.
func store(t *testing.T) *artifact.Store {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := artifact.Open(dir, artifact.Options{})
	dir.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func asUser(ctx context.Context) context.Context {
	return WithCaller(ctx, Caller{
		Principal: "user:ada", Session: "s1", Trace: strings.Repeat("ab", 16), Progress: func(float64, string) {},
	})
}

// callTool calls a tool, validates the result against the published schema, and returns structuredContent as a client decodes
// it.
func callTool(t *testing.T, ctx context.Context, tool Tool, arguments string) (map[string]any, ToolResult) {
	t.Helper()
	r, err := tool.Call(ctx, json.RawMessage(arguments))
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeInternal, Message: err.Error()}
		}
		r = ToolResult{Structured: e, IsError: true}
	}
	raw, err := json.Marshal(r.Structured)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if why := published(t, tool).wrong(v); why != "" {
		t.Errorf("the result violates the schema: %s\n%s", why, raw)
	}
	return v, r
}

// Acquire makes a fakeRunner provide sessions.
func (f *fakeRunner) Acquire(context.Context, *job.Request, job.Spec) (job.Lease, error) {
	return job.Lease{ID: "5e55", Anew: f.anew, Return: func(bool) {}}, nil
}

// exitsWith sets the exit code of jobs.
func (f *fakeRunner) exitsWith(code int) *fakeRunner {
	f.result.ExitCode = code
	if f.result.Status = job.Success; code != 0 {
		f.result.Status = job.Failure
	}
	return f
}

// storeOutput runs a job, whose output is stored, and returns the artifact's handle.
func storeOutput(t *testing.T, s *artifact.Store, stdout, stderr string) string {
	t.Helper()
	f := newFakeRunner()
	f.stdout, f.stderr = stdout, stderr
	c := CallerOf(asUser(t.Context()))
	code := "x"
	out := s.Begin(artifact.BeginOptions{Repo: "app", Runtime: "shell", Principal: c.Principal, Persist: true})
	r := &job.Request{
		Tool: "runtime_execute", Principal: c.Principal, Session: c.Session, ID: c.Trace, Repo: "app", Runtime: "shell", Code: &code,
	}
	if _, err := (&job.Engine{Policy: f, Runner: f, Auditor: f}).Run(t.Context(), r, out, nil); err != nil {
		t.Fatal(err)
	}
	stored := out.Captured()
	if stored.Handle == "" {
		t.Fatalf("not stored: %s", stored.Reason)
	}
	return stored.Handle
}
