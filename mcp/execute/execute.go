// Package execute implements the tools that run code for the caller to see, and read what it wrote: sandbox_exec, starlark_run, and
// those whose names begin with runtime.
package execute

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"corral/internal/strictjson"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// Execute is the tool runtime_execute: it translates between the client's protocol and the engine.
type Execute struct {
	Engine  run.Engine
	Outputs run.Outputs // nil stores nothing
	Repos   []string    // ids of the served repositories
	// Secrets are values redacted from replies and artifacts: those of environment variables that jobs can have.
	Secrets []string
	// Timeouts returns the timeout of a call in a repository that requests none, and the longest that a call can request; nil
	// stands for DefaultTimeout and MaxTimeout.
	Timeouts func(repo string) (usual, longest time.Duration)
	// Paths are the repositories' paths by id, for absolute directories. A repository without one accepts relative ones only.
	Paths map[string]string
}

// Timeouts of runtime_execute.
const (
	DefaultTimeout = time.Minute
	MaxTimeout     = 10 * time.Minute
)

// Output modes.
const (
	modeMinimal = "minimal"
	modeSummary = "summary"
	modeIntent  = "intent"
)

// detailLean is the default of detail.
const detailLean = "lean"

// executeArgs are the arguments of runtime_execute.
type executeArgs struct {
	Repo       string      `arg:"repoId,required,min=1,max=128" about:"see the server's instructions"`
	Runtime    runtimeName `arg:"runtime,required"`
	Executable string      `arg:"executable,max=4096,nonul" about:"default: the first installed"`
	Args       []string    `arg:"args,items=100,max=128KiB,bytes,nonul" about:"for the code; without code, for the executable"`
	Code       string      `arg:"code,max=1MiB,bytes,nonul"`
	Stdin      string      `arg:"stdin,max=512KiB,bytes"`
	Dir        string      `arg:"relativeCwd,max=4096,nonul" default:"." about:"relative to the repository"`
	Anywhere   string      `arg:"cwd,hidden,max=4096,nonul" also:"working_directory"`
	Timeout    *int        `arg:"timeoutMs,min=100,max=600000" also:"timeout" default:"60000"`
	Terms      []string    `arg:"queryTerms,items=10,min=1,max=1KiB" pattern:"^[^\\n]+$" about:"for summary and intent; in either case"`
	Lines      int         `arg:"maxResponseLines,min=10,max=1000" default:"100" about:"for summary"`
	Persist    bool        `arg:"persistOutput" default:"true" about:"for runtime_query_output"`
	Mode       string      `arg:"outputMode" enum:"minimal,summary,intent" default:"minimal"`
	Detail     string      `arg:"detail,hidden" enum:"lean,full" default:"lean"`
	run.NetworkArg
}

// A runtimeName is the name of a runtime.
type runtimeName string

// Choices implements tool.Choices.
func (runtimeName) Choices() []string { return job.Runtimes() }

// Named implements tool.Named.
func (runtimeName) Named(name string) string { return cmp.Or(job.RuntimeNamed(name), name) }

// Hint implements tool.Named.
func (runtimeName) Hint(name string) string {
	command, args := job.ProgramNamed(name)
	switch {
	case args != nil:
		return fmt.Sprintf("To run %s, use runtime \"python\" with args %s, or runtime \"shell\" with code %q", tool.Clip(name), strictjson.Encode(args), command)
	case command != "":
		return fmt.Sprintf("To run %s, use runtime \"shell\" with code %q", tool.Clip(name), command)
	}
	return ""
}

const executeDescription = `Run code or a program in a sandbox on a repository, without network. Files written in the repository stay (with changesHandle: in a copy, until a person applies them).

Give code, or args for the runtime's executable. Shell commands: runtime "shell" with code.

outputMode minimal: counts, and 4 KB of output (of more, both ends). summary: maxResponseLines lines. intent: excerpts around queryTerms. runtime_query_output reads the rest.

status: success, failure (see exitCode, signal, limit, message), timeout, cancelled, denied (see policyDecision.deniedReasons; only "Concurrency limit reached" is worth repeating). Secrets in output become [REDACTED:...].`

// Name implements Tool.
func (t *Execute) Name() string { return "runtime_execute" }

// Definition implements Tool.
func (t *Execute) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Dotted: executeDotted, Title: "Run code in a sandbox", Description: executeDescription,
		Input: tool.InputSchema(executeArgs{}, tool.Strict, t.publishTimeouts), Output: tool.ReplyOutline[executeReply](),
		Destructive: true,
	}
}

// executeDotted is the tool's name with dots.
const executeDotted = "sdl.runtime.execute"

// timeouts returns what Timeouts does.
func (t *Execute) timeouts(repo string) (usual, longest time.Duration) {
	if t.Timeouts == nil {
		return DefaultTimeout, MaxTimeout
	}
	usual, longest = t.Timeouts(repo)
	return usual, min(longest, MaxTimeout)
}

// publishTimeouts writes the timeouts of the served repositories into the schema. A default that is not the same everywhere is
// left out.
func (t *Execute) publishTimeouts(s *tool.Schema) {
	p := s.Property("timeoutMs")
	for n, id := range t.Repos {
		usual, longest := t.timeouts(id)
		ms, top := int(usual.Milliseconds()), int(longest.Milliseconds())
		switch {
		case n == 0:
			p.Default, p.Maximum = ms, &top
		case p.Default != ms:
			p.Default = nil
		}
		if top > *p.Maximum {
			p.Maximum = &top
		}
	}
}

// Call implements Tool.
func (t *Execute) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &executeArgs{}
	if err := tool.Decode(arguments, a, tool.Strict); err != nil {
		return tool.Result{}, err
	}
	if a.Code == "" && len(a.Args) == 0 {
		return tool.Result{}, &tool.Error{
			Code: tool.CodeInvalid, Message: "code or args is required",
			Details: map[string]any{"argument": "code"},
		}
	}
	caller := tool.CallerOf(ctx)
	if err := caller.MayUse(t.Repos, a.Repo); err != nil {
		return tool.Result{}, err
	}
	request, err := t.request(a, caller)
	if err != nil {
		return tool.Result{}, err
	}
	ran, err := run.Job{Caller: caller, Request: request}.Do(ctx, t.Engine, t.Outputs, t.options(a))
	if ran.Record == nil { // else its status says that the call was cancelled
		return tool.Result{}, err
	}
	status, end, about := run.OutcomeOf(ran.Record)
	reply := &executeReply{Status: status, Exit: end, Outcome: *about}
	reply.Capture(ran.Output)
	own := caller.Called != executeDotted // clients of the dotted name expect the replies of another server
	if own && a.Detail == detailLean {
		reply.Lean()
	}
	showOutput(reply, ran.Output, a.Mode, own)
	return tool.Result{Structured: reply, Text: summarize(reply), IsError: ran.Record.Status == job.Denied}, nil
}

// options describe what is captured of the output.
func (t *Execute) options(a *executeArgs) artifact.BeginOptions {
	o := artifact.BeginOptions{Persist: a.Persist, Secrets: t.Secrets}
	switch a.Mode {
	case modeSummary:
		o.View = artifact.View{Lines: a.Lines, Terms: a.Terms, Fallback: true}
	case modeIntent:
		o.View.Terms = a.Terms
	case modeMinimal:
		o.View.Ends = maxShort / 2
	}
	return o
}

func (t *Execute) request(a *executeArgs, c tool.Caller) (*job.Request, error) {
	usual, _ := t.timeouts(a.Repo)
	r := run.NewRequest(c, t.Name(), a.Repo)
	r.Runtime, r.Executable, r.Args, r.Stdin, r.Dir, r.Usual.Wall = string(a.Runtime), a.Executable, a.Args, a.Stdin, a.Dir, usual
	if a.Anywhere != "" {
		if a.Dir != "." {
			return nil, tool.Invalid("cwd", "means the same as relativeCwd, which is given as well")
		}
		var err error
		if r.Dir, err = tool.InRepo(t.Paths[a.Repo], "cwd", a.Anywhere); err != nil {
			return nil, err
		}
	}
	var err error
	if r.Network, err = a.Asked(); err != nil {
		return nil, err
	}
	if a.Timeout != nil {
		r.Limits.Wall = time.Duration(*a.Timeout) * time.Millisecond
	}
	if a.Code != "" {
		r.Code = &a.Code
	}
	return r, nil
}

// showOutput adds the output that the mode has. text adds to the counts of mode minimal also the output or, if that is long, its ends.
func showOutput(r *executeReply, c artifact.Captured, mode string, text bool) {
	switch mode {
	case modeMinimal:
		lines, bytes := c.Stdout.Lines+c.Stderr.Lines, c.Stdout.Bytes+c.Stderr.Bytes
		r.OutputLines, r.OutputBytes = &lines, &bytes
		if text && r.Status != job.Denied {
			stdout, stderr := short(&c.Stdout, &c.Stderr)
			r.Stdout, r.Stderr = &stdout, &stderr
		}
	case modeSummary:
		r.StdoutSummary, r.StderrSummary = &c.Stdout.Summary, &c.Stderr.Summary
		if len(c.Excerpts) > 0 {
			excerpts := excerptsOf(c.Excerpts)
			r.Excerpts = &excerpts
		}
	case modeIntent:
		excerpts := excerptsOf(c.Excerpts)
		r.Excerpts = &excerpts
	}
}

// summarize returns the text of a reply whose JSON is too long to be repeated as text.
func summarize(r *executeReply) string {
	var b strings.Builder
	fmt.Fprintf(&b, "status: %s", r.Status)
	if r.ExitCode != nil {
		fmt.Fprintf(&b, ", exit code %d", *r.ExitCode)
	}
	if r.Signal != nil {
		fmt.Fprintf(&b, ", signal %s", *r.Signal)
	}
	fmt.Fprintf(&b, "; stdout %d bytes, stderr %d bytes", r.Truncation.TotalStdout, r.Truncation.TotalStderr)
	if r.ArtifactHandle != nil {
		fmt.Fprintf(&b, "; artifactHandle %s", *r.ArtifactHandle)
	}
	b.WriteString("; the output is in structuredContent, and can be read in parts with runtime_query_output")
	return b.String()
}

// An executeReply is the structuredContent of runtime_execute. Fields that a mode does not have are absent.
type executeReply struct {
	Status job.Status `json:"status" enum:"success,failure,timeout,cancelled,denied"`
	run.Exit
	OutputLines   *int64     `json:"outputLines,omitempty"` // mode minimal: lines of both streams
	OutputBytes   *int64     `json:"outputBytes,omitempty"` // mode minimal: bytes of both streams
	Stdout        *string    `json:"stdout,omitempty"`      // mode minimal, undotted name: whole if both streams are short, else first and last lines
	Stderr        *string    `json:"stderr,omitempty"`
	StdoutSummary *string    `json:"stdoutSummary,omitempty"` // mode summary: head and tail
	StderrSummary *string    `json:"stderrSummary,omitempty"` // mode summary: tail
	Excerpts      *[]Excerpt `json:"excerpts,omitempty"`      // modes summary and intent: around what matches queryTerms
	run.Outcome
}
