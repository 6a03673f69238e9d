// Package mcptest has what tests of several packages of mcp, and of the front-ends that use them, need: a runner of jobs that does
// as the test says, a store, schemas as clients read them, and a watcher of calls, which the tests of rpc use as well.
package mcptest

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
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A FakeRunner is a policy, runner and auditor for a real job.Engine.
type FakeRunner struct {
	Decision job.Decision
	Result   job.Result
	Err      error // returned by Run
	Stdout   string
	Stderr   string
	During   func(ctx context.Context) // called while the job runs
	Replaced job.SessionEnd            // why the session replaces another one

	Request *job.Request // last request
	Spec    job.Spec     // last spec
	Stdin   string
}

// Decide implements job.Policy.
func (f *FakeRunner) Decide(_ context.Context, r *job.Request) (job.Decision, error) {
	f.Request = r
	return f.Decision, nil
}

// Denied implements job.Auditor.
func (f *FakeRunner) Denied(context.Context, job.Claim, job.Spec) error { return nil }

// Run implements job.Runner.
func (f *FakeRunner) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	f.Spec = spec
	if stdio.Stdin != nil {
		b, _ := io.ReadAll(stdio.Stdin)
		f.Stdin = string(b)
		stdio.Stdin.Close()
	}
	_, err := io.WriteString(stdio.Stdout, f.Stdout)
	_, err2 := io.WriteString(stdio.Stderr, f.Stderr)
	if f.During != nil {
		f.During(ctx)
	}
	stdio.Stdout.Close()
	stdio.Stderr.Close()
	return f.Result, errors.Join(f.Err, err, err2)
}

// SomeHash is the hash of a FakeRunner's decisions.
const SomeHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// NewFakeRunner returns a runner whose jobs succeed and write nothing.
func NewFakeRunner() *FakeRunner {
	return &FakeRunner{
		Decision: job.Decision{Hash: SomeHash, Spec: job.Spec{Args: []string{"true"}}},
		Result: job.Result{Status: job.Success, Usage: job.Usage{
			Wall: 1500 * time.Millisecond, CPU: 20 * time.Millisecond, PeakMemory: 4096, PeakPIDs: -1,
		}},
	}
}

// Store returns a real store in a temporary directory.
func Store(t *testing.T) *artifact.Store {
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

// AsUser returns a context with the caller user:ada in session s1.
func AsUser(ctx context.Context) context.Context {
	return tool.WithCaller(ctx, tool.Caller{
		Principal: "user:ada", Session: "s1", Trace: strings.Repeat("ab", 16), Progress: func(float64, string) {},
	})
}

// CallTool calls a tool, validates the result against the published schema, and returns structuredContent as a client decodes
// it.
func CallTool(t *testing.T, ctx context.Context, target tool.Tool, arguments string) (map[string]any, tool.Result) {
	t.Helper()
	r, err := target.Call(ctx, json.RawMessage(arguments))
	if err != nil {
		var e *tool.Error
		if !errors.As(err, &e) {
			e = &tool.Error{Code: tool.CodeInternal, Message: err.Error()}
		}
		r = tool.Result{Structured: e, IsError: true}
	}
	raw, err := json.Marshal(r.Structured)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	CheckReply(t, target, v)
	return v, r
}

// Acquire makes a fakeRunner provide sessions.
func (f *FakeRunner) Acquire(context.Context, *job.Request, job.Spec) (job.Lease, error) {
	return job.Lease{ID: "5e55", Replaced: f.Replaced, Return: func(bool) {}}, nil
}

// ExitsWith sets the exit code of jobs.
func (f *FakeRunner) ExitsWith(code int) *FakeRunner {
	f.Result.ExitCode = code
	if f.Result.Status = job.Success; code != 0 {
		f.Result.Status = job.Failure
	}
	return f
}

// StoreOutput runs a job, whose output is stored, and returns the artifact's handle.
func StoreOutput(t *testing.T, s *artifact.Store, stdout, stderr string) string {
	t.Helper()
	f := NewFakeRunner()
	f.Stdout, f.Stderr = stdout, stderr
	c := tool.CallerOf(AsUser(t.Context()))
	code := "x"
	out := s.Begin(artifact.BeginOptions{Repo: "app", Runtime: "shell", Principal: c.Principal, Persist: true})
	r := &job.Request{
		Tool: "runtime_execute", Principal: c.Principal, Session: c.Session, ID: c.Trace, Repo: "app", Runtime: "shell", Code: &code,
	}
	if _, err := (&job.Engine{Policy: f, Runner: f, Auditor: f}).Run(t.Context(), r, out, job.Hooks{}); err != nil {
		t.Fatal(err)
	}
	stored := out.Captured()
	if stored.Handle == "" {
		t.Fatalf("not stored: %s", stored.Reason)
	}
	return stored.Handle
}

// Keep stores the output of one job in a state directory, as a server does that ends before Keep returns.
func Keep(t testing.TB, state, stdout, stderr string) (handle string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := artifact.Open(f, artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := s.Begin(artifact.BeginOptions{Repo: "app", Runtime: "shell", Principal: "user:ada", Persist: true})
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		f    *os.File
		text string
	}{{o, stdout}, {e, stderr}} {
		if _, err := io.WriteString(to.f, to.text); err != nil {
			t.Fatal(err)
		}
		to.f.Close()
	}
	out.Finish(&job.Record{Status: job.Failure, Result: job.Result{ID: "job-kept1234", ExitCode: 3}, Created: time.Now()})
	if h := out.Captured().Handle; h != "" {
		return h
	}
	t.Fatal(out.Captured().Reason)
	return ""
}
