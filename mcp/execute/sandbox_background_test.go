package execute

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A fakeProcess is a run.Process in the state of its snapshot.
type fakeProcess struct {
	snapshot  run.Snapshot
	err       error // of Detach
	done      chan struct{}
	cancelled bool
	learned   bool
}

func (p *fakeProcess) Started() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
func (p *fakeProcess) Done() <-chan struct{}           { return p.done }
func (p *fakeProcess) Cancel()                         { p.cancelled = true }
func (p *fakeProcess) Detach() (bool, error)           { return false, p.err }
func (p *fakeProcess) Snapshot() (run.Snapshot, error) { return p.snapshot, nil }
func (p *fakeProcess) Learn(context.Context)           { p.learned = true }

// launching returns the tool, which launches p, and the request that it launches.
func launching(p *fakeProcess) (*Sandbox, *job.Request) {
	var launched job.Request
	t := sandboxTool(mcptest.NewFakeRunner())
	t.Launch = func(_ context.Context, c tool.Caller, r *job.Request, label string) run.Process {
		launched = *r
		if launched.Tool = label; c.Principal != "user:ada" {
			launched.Tool = "another's"
		}
		return p
	}
	t.Follow = func(id string) string { return "follow " + id }
	t.Ports = func(context.Context, tool.Caller, string) []uint16 { return []uint16{5432} }
	return t, &launched
}

// TestSandboxBackground: the reply about a command that runs on has what it wrote so far, where it listens and how to follow it.
func TestSandboxBackground(t *testing.T) {
	p := &fakeProcess{done: make(chan struct{}), snapshot: run.Snapshot{ID: "bg_1", Running: true, Elapsed: 512 * time.Millisecond}}
	p.snapshot.Output.Stdout = artifact.StreamCapture{Head: "ready\n", Tail: "end\xff", Between: 7}
	s, launched := launching(p)
	text, isError := execSandbox(t, s, `{"command":"serve","background":true,"stdin":"x","working_directory":"/tmp"}`)
	want := `{"stdout":"ready\n\n... (7 bytes left out) ...\nend` + "\ufffd" +
		`","stderr":"","exit_code":null,"exec_duration_ms":512,"job_id":"bg_1","listening":["127.0.0.1:5432"],"follow":"follow bg_1"}`
	if text != want || isError {
		t.Errorf("%s, want %s", text, want)
	}
	if launched.Tool != "sandbox_exec" || launched.Dir != "/tmp" || launched.Stdin != "x" || !launched.Root || launched.Usual != (job.Limits{}) {
		t.Errorf("%+v", launched)
	}
	_, _ = execSandbox(t, s, `{"command":"serve","background":true,"timeout":3}`)
	if launched.Usual.Wall != 3*time.Second {
		t.Errorf("%+v", launched.Usual)
	}
	p.err = &tool.Error{Code: tool.CodeDenied, Message: "too many"}
	if text, isError := execSandbox(t, s, `{"command":"serve","background":true}`); text != "too many" || !isError || !p.cancelled {
		t.Errorf("%s, %v, cancelled: %v", text, isError, p.cancelled)
	}
}

// TestSandboxBackgroundEnded: a command that ends within its call gets the reply of any other.
func TestSandboxBackgroundEnded(t *testing.T) {
	p := &fakeProcess{done: make(chan struct{}), snapshot: run.Snapshot{ID: "bg_1", Record: &job.Record{
		Status: job.Failure, Result: job.Result{ExitCode: 2, Status: job.Failure, Usage: job.Usage{Wall: 9 * time.Millisecond}},
	}}}
	close(p.done)
	p.snapshot.Output.Stderr = artifact.StreamCapture{Head: "no such", Tail: " file\n"}
	s, _ := launching(p)
	text, isError := execSandbox(t, s, `{"command":"serve","background":true}`)
	if want := `{"stdout":"","stderr":"no such file\n","exit_code":2,"exec_duration_ms":9}`; text != want || isError || !p.learned {
		t.Errorf("%s, want %s, learned: %v", text, want, p.learned)
	}
	p.snapshot.Record.Status, p.snapshot.Record.Decision = job.Denied, job.Decision{Rule: "x", Reasons: []string{"people deploy"}}
	if text, isError := execSandbox(t, s, `{"command":"serve","background":true}`); text != "people deploy" || !isError {
		t.Errorf("%s, %v", text, isError)
	}
}

// TestSandboxBackgroundAbout: the schema stays that of the contract, and the description names background only where there is one.
func TestSandboxBackgroundAbout(t *testing.T) {
	s, _ := launching(&fakeProcess{})
	d := s.Definition()
	schema, err := json.Marshal(d.Input)
	if err != nil || strings.Contains(string(schema), "background") || !strings.Contains(d.Description, "background: true") {
		t.Errorf("%s, %v: %s", schema, err, d.Description)
	}
	s.Launch = nil
	if strings.Contains(s.Definition().Description, "background") {
		t.Error(s.Definition().Description)
	}
	if text, isError := execSandbox(t, s, `{"command":"serve","background":true}`); !isError || !strings.HasPrefix(text, "background is not available") {
		t.Errorf("%s", text)
	}
}
