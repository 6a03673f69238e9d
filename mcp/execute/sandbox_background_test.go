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

// A launcher is a tool with background jobs, at most max of them at once, and what it started last.
type launcher struct {
	*Sandbox
	f       *mcptest.FakeRunner
	max     int
	margins int
	started run.Job
	learned bool
	process *run.Process
}

// A startingRunner reports that its jobs have started.
type startingRunner struct{ *mcptest.FakeRunner }

func (r startingRunner) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	stdio.Started(struct{ job.Signaler }{})
	return r.FakeRunner.Run(ctx, spec, stdio)
}

// launching returns a tool that has background jobs. They write what f says, and run until the test ends if hold is true.
func launching(t *testing.T, hold bool) *launcher {
	l := &launcher{f: mcptest.NewFakeRunner(), max: 1, margins: 6}
	if hold {
		l.f.During = func(ctx context.Context) { <-ctx.Done() }
	}
	l.Sandbox = sandboxTool(l.f)
	l.Engine = &job.Engine{Policy: l.f, Runner: startingRunner{l.f}, Auditor: l.f, Sessions: l.f}
	list := run.NewProcesses()
	t.Cleanup(list.Close)
	l.Launch = func(ctx context.Context, j run.Job) *run.Process {
		l.started = j
		h := run.Host{
			Engine: l.Engine, Max: l.max, Ended: func(context.Context, *run.Process, run.State) error { return nil },
			Learn: func(context.Context, run.State) { l.learned = true },
		}
		l.process = list.Prepare(ctx, h, j, j.Begin(nil, artifact.BeginOptions{View: artifact.View{Ends: l.margins}}))
		l.process.Start()
		return l.process
	}
	l.Follow = func(id string) string { return "follow " + strings.Repeat("x", len(id)-1) }
	l.Ports = func(context.Context, tool.Caller, string) []uint16 { return []uint16{5432} }
	return l
}

// TestSandboxBackground: the reply about a command that runs on has what it wrote so far, where it listens and how to follow it.
func TestSandboxBackground(t *testing.T) {
	l := launching(t, true)
	l.f.Stdout = "ready\n0123456an end"
	text, isError := execSandbox(t, l.Sandbox, `{"command":"serve","background":true,"stdin":"x","working_directory":"/tmp"}`)
	var reply map[string]any
	if err := json.Unmarshal([]byte(text), &reply); err != nil || isError {
		t.Fatal(text, err)
	}
	for key, want := range map[string]string{
		"stdout": `"ready\n\n... (5 bytes left out) ...\n56an end"`, "stderr": `""`, "exit_code": "null", "listening": `["127.0.0.1:5432"]`,
		"job_id": `"` + l.process.ID() + `"`, "follow": `"follow ` + strings.Repeat("x", 18) + `"`,
	} {
		if got, _ := json.Marshal(reply[key]); string(got) != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if took, _ := reply["exec_duration_ms"].(float64); took < 500 || len(reply) != 7 {
		t.Errorf("%s", text)
	}
	r := l.started.Request
	if l.started.Label != "sandbox_exec" || l.started.Caller.Principal != "user:ada" || r.Dir != "/tmp" || r.Stdin != "x" || !r.Root || r.Usual != (job.Limits{}) {
		t.Errorf("%+v", l.started)
	}
	text, isError = execSandbox(t, l.Sandbox, `{"command":"serve","background":true,"timeout":3}`)
	if !strings.HasPrefix(text, "background: 1 background jobs are running already") || !isError || l.started.Request.Usual.Wall != 3*time.Second {
		t.Errorf("%s, %v, %+v", text, isError, l.started.Request.Usual)
	}
	if s, err := l.process.State(); s.Running || err != nil {
		t.Errorf("the refused one: %+v, %v", s, err)
	}
}

// TestSandboxBackgroundEnded: a command that ends within its call gets the reply of any other.
func TestSandboxBackgroundEnded(t *testing.T) {
	l := launching(t, false)
	l.f.Stderr, l.f.Result = "no such file\n", job.Result{ExitCode: 2, Status: job.Failure, Usage: job.Usage{Wall: 9 * time.Millisecond}}
	l.margins = 1 << 10
	text, isError := execSandbox(t, l.Sandbox, `{"command":"serve","background":true}`)
	if want := `{"stdout":"","stderr":"no such file\n","exit_code":2,"exec_duration_ms":9}`; text != want || isError || !l.learned {
		t.Errorf("%s, want %s, learned: %v", text, want, l.learned)
	}
	l.f.Decision = job.Decision{Rule: "x", Reasons: []string{"people deploy"}}
	if text, isError := execSandbox(t, l.Sandbox, `{"command":"serve","background":true}`); text != "people deploy" || !isError {
		t.Errorf("%s, %v", text, isError)
	}
}

// TestSandboxBackgroundAbout: the schema stays that of the contract, and the description names background only where there is one.
func TestSandboxBackgroundAbout(t *testing.T) {
	s := launching(t, false).Sandbox
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
