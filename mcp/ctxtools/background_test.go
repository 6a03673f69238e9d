package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// A controlledRunner is a runner whose jobs run until the test ends them.
type controlledRunner struct {
	*mcptest.FakeRunner
	mu      sync.Mutex
	acts    []*controlledJob // guarded by mu
	refuses *job.Refusal     // of every job
}

// A controlledJob is one running job, controlled by the test.
type controlledJob struct {
	stdout, stderr io.Writer
	end            chan job.Result // ends the job
	signals        chan string
	ended          chan struct{}
}

// write writes a job's output.
func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Error(err)
	}
}

// Signal implements job.Signaler.
func (a *controlledJob) Signal(number int, everyone bool) error {
	a.signals <- fmt.Sprint(number, everyone)
	return nil
}

// End implements job.Signaler.
func (a *controlledJob) End(number int) error {
	a.signals <- fmt.Sprint("end ", number)
	return nil
}

func (f *controlledRunner) Decide(ctx context.Context, r *job.Request) (job.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.FakeRunner.Decide(ctx, r)
}

func (f *controlledRunner) Run(ctx context.Context, _ job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	if f.refuses != nil {
		return job.Result{}, f.refuses
	}
	a := &controlledJob{stdout: stdio.Stdout, stderr: stdio.Stderr, end: make(chan job.Result), signals: make(chan string, 9), ended: make(chan struct{})}
	defer close(a.ended)
	f.mu.Lock()
	f.acts = append(f.acts, a)
	f.mu.Unlock()
	if stdio.Started != nil {
		stdio.Started(a)
	}
	select {
	case r := <-a.end:
		return r, nil
	case <-ctx.Done():
		return job.Result{Status: job.Cancelled, ExitCode: -1, Signal: 9}, nil
	}
}

// act returns the n-th job, counted from 0.
func (f *controlledRunner) act(t *testing.T, n int) *controlledJob {
	t.Helper()
	var a *controlledJob
	sandboxtest.Eventually(t, 10*time.Second, "the job runs", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.acts) > n {
			a = f.acts[n]
		}
		return a != nil
	})
	return a
}

func (f *controlledRunner) ctx(t *testing.T) (*Suite, *memoryKnowledge) {
	x, k := newCtx(t, f.FakeRunner)
	x.Engine = &job.Engine{Policy: f, Runner: f, Auditor: f}
	return x, k
}

func newControlledRunner() *controlledRunner {
	return &controlledRunner{FakeRunner: mcptest.NewFakeRunner()}
}

func inSession(ctx context.Context, principal, session string) context.Context {
	return tool.WithCaller(ctx, tool.Caller{Principal: principal, Session: session, Progress: func(float64, string) {}})
}

// ada is a caller of mcptest.AsUser's session.
var ada = tool.Caller{Principal: "user:ada", Session: "s1"}

// runs reports whether the oldest job of a principal's session runs.
func runs(x *Suite, principal string) bool {
	s, _ := x.Processes(tool.Caller{Principal: principal, Session: "s1"})[0].State()
	return s.Running
}

const inBackground = `{"language":"shell","code":"x","background":true}`

// begin starts a background job and returns its id.
func begin(t *testing.T, ctx context.Context, x *Suite) string {
	t.Helper()
	v, r := mcptest.CallTool(t, ctx, &Execute{x}, inBackground)
	id, _ := v["jobId"].(string)
	if r.IsError || !strings.HasPrefix(id, "bg_") || len(id) != 19 {
		t.Fatalf("%t %q", r.IsError, r.Text)
	}
	return id
}

// callCtxJob calls ctx_job and returns its reply.
func callCtxJob(t *testing.T, ctx context.Context, x *Suite, id, rest string) (map[string]any, tool.Result) {
	t.Helper()
	return mcptest.CallTool(t, ctx, &Job{x}, `{"id":"`+id+`",`+rest+`}`)
}

// awaitOutput waits until the job's output contains want.
func awaitOutput(t *testing.T, ctx context.Context, x *Suite, id, want string) {
	t.Helper()
	sandboxtest.Eventually(t, 10*time.Second, "the job's output has the text", func() bool {
		_, r := callCtxJob(t, ctx, x, id, `"action":"output"`)
		return strings.Contains(r.Text, want)
	})
}

// TestBackground: a background job can be followed and signaled; after its end the output can be searched.
func TestBackground(t *testing.T) {
	f := newControlledRunner()
	x, k := f.ctx(t)
	ctx := mcptest.AsUser(t.Context())
	v, r := mcptest.CallTool(t, ctx, &Execute{x}, inBackground)
	id, _ := v["jobId"].(string)
	want := "_(process backgrounded after 0ms — still running)_\n\nJob: " + id + ". Follow it with ctx_job(id: \"" + id + `", action: "status" | "output" | "signal").`
	if r.IsError || r.Text != want || v["status"] != "running" {
		t.Fatalf("%t %q %v", r.IsError, r.Text, v)
	}
	if q := f.Request; !q.Background || q.Limits.Wall != 0 || q.Usual.Wall != time.Hour {
		t.Errorf("request %+v", q)
	}
	a := f.act(t, 0)
	write(t, a.stdout, "ready\n")
	write(t, a.stderr, "noise\n")
	awaitOutput(t, ctx, x, id, "ready\n\n\n_(still running — offset 6)_")
	sandboxtest.Eventually(t, 10*time.Second, "the bytes of both streams are counted", func() bool {
		v, _ := callCtxJob(t, ctx, x, id, `"action":"status"`)
		return v["status"] == "running" && v["stdoutBytes"] == 6.0 && v["stderrBytes"] == 6.0 && v["runtime"] == "shell"
	})
	if _, r := callCtxJob(t, ctx, x, id, `"action":"output","stream":"stderr"`); !strings.HasPrefix(r.Text, "noise\n") {
		t.Errorf("stderr: %q", r.Text)
	}
	for _, tt := range []struct{ rest, want string }{
		{`"signal":"USR1"`, "10 false"}, {`"signal":"INT"`, "2 true"}, {`"signal":null`, "end 15"},
	} {
		if _, r := callCtxJob(t, ctx, x, id, `"action":"signal",`+tt.rest); r.IsError || !strings.HasSuffix(r.Text, " sent to "+id) {
			t.Errorf("%s: %q", tt.rest, r.Text)
		}
		if got := <-a.signals; got != tt.want {
			t.Errorf("%s: got %s", tt.rest, got)
		}
	}
	write(t, a.stdout, "done\n")
	a.end <- job.Result{Status: job.Failure, ExitCode: -1, Signal: 15}
	sandboxtest.Eventually(t, 10*time.Second, "the job has ended", func() bool {
		v, _ := callCtxJob(t, ctx, x, id, `"action":"status"`)
		return v["status"] == "failure" && v["signal"] == "SIGTERM" && v["endedAt"] != nil && v["stdoutBytes"] == 11.0
	})
	if _, r := callCtxJob(t, ctx, x, id, `"action":"output"`); r.Text != "ready\ndone\n" {
		t.Errorf("output after the end: %q", r.Text)
	}
	if _, r := callCtxJob(t, ctx, x, id, `"action":"output","offset":"6"`); r.Text != "done\n" {
		t.Errorf("output from offset 6: %q", r.Text)
	}
	if _, r := callCtxJob(t, ctx, x, id, `"action":"output","tail":1`); r.Text != "done\n" {
		t.Errorf("last line: %q", r.Text)
	}
	if _, r := callCtxJob(t, ctx, x, id, `"action":"signal"`); !r.IsError || r.Text != "id: job "+id+" has ended" {
		t.Errorf("signaled after the end: %q", r.Text)
	}
	x.waitIndexed(ctx, testBase)
	if names := k.names(testBase); !slices.Equal(names, []string{"execute:shell#1"}) {
		t.Errorf("knowledge base has %q", names)
	}
}

// TestBackgroundWait: with a timeout the call waits, and a job that ends in time gets the ordinary reply.
func TestBackgroundWait(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	ctx := mcptest.AsUser(t.Context())
	done := make(chan tool.Result)
	go func() {
		r, _ := (&Execute{x}).Call(ctx, json.RawMessage(`{"language":"shell","code":"x","background":"true","timeout":600000}`))
		done <- r
	}()
	a := f.act(t, 0)
	write(t, a.stdout, "out")
	a.end <- job.Result{Status: job.Failure, ExitCode: 3}
	if r := <-done; r.Text != "Exit code: 3\n\nstdout:\nout\n\nstderr:\n" {
		t.Errorf("got %q", r.Text)
	}
	if _, r := mcptest.CallTool(t, ctx, &Jobs{x}, `{}`); r.Text != "No jobs in the background." {
		t.Errorf("still listed: %q", r.Text)
	}
	go func() {
		r, _ := (&Execute{x}).Call(ctx, json.RawMessage(`{"language":"shell","code":"x","background":true,"timeout":"600"}`))
		done <- r
	}()
	write(t, f.act(t, 1).stdout, "so far\n")
	if r := <-done; !strings.HasPrefix(r.Text, "so far\n\n\n_(process backgrounded after 600ms — still running)_\n\nJob: bg_") {
		t.Errorf("got %q", r.Text)
	}
}

// TestBackgroundRefused: a job that cannot be started is reported at once.
func TestBackgroundRefused(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	f.refuses = &job.Refusal{Step: "exec", Message: "no such program", Errno: 2}
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, inBackground); !r.IsError || r.Text != "Runtime error: true: no such program in the jail" {
		t.Errorf("got %q", r.Text)
	}
	f.Decision.Rule, f.Decision.Reasons = "x", []string{"no"}
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, inBackground); !r.IsError || r.Text != "no" {
		t.Errorf("got %q", r.Text)
	}
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Jobs{x}, `{}`); r.Text != "No jobs in the background." {
		t.Errorf("still listed: %q", r.Text)
	}
}

// TestBackgroundCancelled: a cancelled call leaves no job.
func TestBackgroundCancelled(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	ctx, cancel := context.WithCancel(mcptest.AsUser(t.Context()))
	done := make(chan error)
	go func() {
		_, err := (&Execute{x}).Call(ctx, json.RawMessage(`{"language":"shell","code":"x","background":true,"timeout":600000}`))
		done <- err
	}()
	a := f.act(t, 0)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-a.ended
	if list := x.Processes(ada); len(list) != 0 {
		t.Errorf("%d jobs", len(list))
	}
}

// TestBackgroundOwners: a session cannot see the jobs of others, and its end ends its own jobs.
func TestBackgroundOwners(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	mine, other, foreign := inSession(t.Context(), "user:ada", "s1"), inSession(t.Context(), "user:ada", "s2"), inSession(t.Context(), "user:eve", "s1")
	id, second := begin(t, mine, x), begin(t, other, x)
	for _, tt := range []struct {
		name string
		ctx  context.Context
		id   string
		ok   bool
	}{
		{"mine", mine, id, true},
		{"another session's", mine, second, false},
		{"mine, by another session", other, id, false},
		{"mine, by another principal", foreign, id, false},
		{"unknown id", mine, "bg_0123456789abcdef", false},
	} {
		for _, rest := range []string{`"action":"status"`, `"action":"output"`, `"action":"signal"`} {
			v, r := callCtxJob(t, tt.ctx, x, tt.id, rest)
			if r.IsError == tt.ok || !tt.ok && (v["code"] != tool.CodeNotFound || r.Text != "id: there is no job "+tt.id) {
				t.Errorf("%s %s: %q", tt.name, rest, r.Text)
			}
		}
	}
	list := func(ctx context.Context) int {
		v, r := mcptest.CallTool(t, ctx, &Jobs{x}, `{"unknown":1}`)
		jobs := v["jobs"].([]any)
		if n := strings.Count(r.Text, ": running for "); n != len(jobs) {
			t.Errorf("%d jobs, %d in the text: %s", len(jobs), n, r.Text)
		}
		return len(jobs)
	}
	if a, b, c := list(mine), list(other), list(foreign); a != 1 || b != 1 || c != 0 {
		t.Errorf("%d, %d and %d jobs", a, b, c)
	}
	x.End("user:ada", "s1")
	<-f.act(t, 0).ended // End waits for it
	if a, b := list(mine), list(other); a != 0 || b != 1 {
		t.Errorf("after the end: %d and %d jobs", a, b)
	}
	x.Close()
	<-f.act(t, 1).ended
}

// TestBackgroundLimitPerPrincipal: a principal's running jobs are limited; ended ones do not count.
func TestBackgroundLimitPerPrincipal(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	x.MaxBackground = 2
	begin(t, inSession(t.Context(), "user:ada", "s1"), x)
	begin(t, inSession(t.Context(), "user:ada", "s2"), x)
	v, r := mcptest.CallTool(t, inSession(t.Context(), "user:ada", "s3"), &Execute{x}, inBackground)
	if !r.IsError || v["code"] != tool.CodeDenied || !strings.HasPrefix(r.Text, "background: 2 background jobs are running already") {
		t.Errorf("got %q", r.Text)
	}
	begin(t, inSession(t.Context(), "user:eve", "s1"), x)
	a := f.act(t, 0)
	a.end <- job.Result{Status: job.Success}
	<-a.ended
	sandboxtest.Eventually(t, 10*time.Second, "the job has ended", func() bool { return !runs(x, "user:ada") })
	begin(t, inSession(t.Context(), "user:ada", "s3"), x)
}

// TestEndedJobsStayListed: a session's last ended jobs stay listed.
func TestEndedJobsStayListed(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	ctx := mcptest.AsUser(t.Context())
	var ids []string
	for n := range run.MaxEnded + 3 {
		ids = append(ids, begin(t, ctx, x))
		a := f.act(t, n)
		a.end <- job.Result{Status: job.Success}
		b, err := x.FindProcess(ada, ids[n])
		if err != nil {
			t.Fatal(err)
		}
		<-b.Done()
	}
	if _, err := x.FindProcess(ada, ids[2]); err == nil {
		t.Error("the third is still listed")
	}
	if _, err := x.FindProcess(ada, ids[3]); err != nil {
		t.Error(err)
	}
	if n := len(x.Processes(ada)); n != run.MaxEnded {
		t.Errorf("%d jobs", n)
	}
}

// TestUnstoredOutputKeepsMargins: of output that could not be stored, the margins stay available.
func TestUnstoredOutputKeepsMargins(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	x.Outputs = nil
	ctx := mcptest.AsUser(t.Context())
	id := begin(t, ctx, x)
	a := f.act(t, 0)
	write(t, a.stdout, "first\n"+strings.Repeat("all is well\n", 100_000)+"last\n")
	a.end <- job.Result{Status: job.Success}
	b, _ := x.FindProcess(ada, id)
	<-b.Done()
	sandboxtest.Eventually(t, 10*time.Second, "the job has ended and its output was trimmed", func() bool {
		_, r := callCtxJob(t, ctx, x, id, `"action":"output"`)
		return strings.HasPrefix(r.Text, "... (1183627 bytes left out) ...\n") && strings.HasSuffix(r.Text, "\nlast\n")
	})
	v, r := callCtxJob(t, ctx, x, id, `"action":"output","offset":0`)
	if !strings.HasPrefix(r.Text, "first\nall") || v["nextOffset"] != 16384.0 || !strings.HasSuffix(r.Text, "\n\n_(more follows: offset 16384 of 1200011)_") {
		t.Errorf("%q … %q", r.Text[:50], r.Text[len(r.Text)-100:])
	}
}

// TestLaunch: the request of another tool runs as it is, for the time that it asks for or the maximum, as a job that ctx_job
// follows.
func TestLaunch(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, time.Hour: time.Minute} {
		f := newControlledRunner()
		x, _ := f.ctx(t)
		x.Engine = &job.Engine{Policy: f, Runner: f, Auditor: f, Sessions: f}
		x.BackgroundLife = time.Minute
		x.Ports = func(context.Context, tool.Caller, string) []uint16 { return []uint16{80} }
		c := tool.CallerOf(mcptest.AsUser(t.Context()))
		r := &job.Request{Tool: "sandbox_exec", Principal: c.Principal, Repo: "app", Root: true, Command: []string{"serve"}, Dir: "/tmp", Usual: job.Limits{Wall: asked}}
		p := x.Launch(t.Context(), run.Job{Caller: c, Request: r, Label: "sandbox_exec"})
		f.act(t, 0)
		if ended, err := p.Detach(); ended || err != nil {
			t.Fatal(ended, err)
		}
		if q := f.Request; q.Usual.Wall != want || !q.Background || !q.Root || q.Dir != "/tmp" || q.Command[0] != "serve" || r.Background {
			t.Errorf("asked for %v: %+v", asked, q)
		}
		s, err := p.State()
		if err != nil {
			t.Fatal(err)
		}
		got, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Job{x}, fmt.Sprintf(`{"id":%q,"action":"status"}`, s.ID))
		text, _ := got["text"].(string)
		if fmt.Sprint(got["listening"]) != "[127.0.0.1:80]" || !strings.Contains(text, "sandbox_exec; stdout 0 bytes, stderr 0 bytes; jobs of the session listen at 127.0.0.1:80") {
			t.Errorf("%v", got)
		}
		p.Cancel()
		got, _ = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Job{x}, fmt.Sprintf(`{"id":%q,"action":"status"}`, s.ID))
		if got["status"] != "cancelled" || got["listening"] != nil {
			t.Errorf("%v", got)
		}
	}
}
