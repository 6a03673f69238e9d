package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/policy/starlark"
	"corral/store/artifact"

	safe "corral/internal/text"
)

// Starlark is the tool starlark_run: it runs a Starlark program, whose only input is the argument "input". The
// program runs as a job, like all code that is not corral's own. A repository is only needed to account for the
// job; the job cannot see it.
//
// The same program and input give the same reply each time, errors included.
type Starlark struct {
	Engine run.Engine
	Repos  []string // ids of the served repositories
	Repo   string   // repository that runs are accounted to; "" is the first that the caller may use
}

// Defaults of starlark_run.
const (
	DefaultStarlarkWall   = time.Second
	DefaultStarlarkOutput = 64 // KiB
)

// maxFailure is the maximum size in bytes of the interpreter's failure report, which follows the program's output.
const maxFailure = 64 << 10

// starlarkArgs are the arguments of starlark_run.
type starlarkArgs struct {
	Source string          `arg:"source,required,max=256KiB,bytes"`
	Input  string          `arg:"input,max=4MiB,bytes"`
	Limits *starlarkLimits `arg:"limits"`
	Caps   *struct{}       `arg:"caps" about:"must be empty"`
}

// starlarkLimits are the limits of a run.
type starlarkLimits struct {
	Wall   *int `arg:"wall_ms,min=1,max=60000" default:"1000"`
	Output int  `arg:"output_kb,min=1,max=1024" default:"64"`
}

const starlarkDescription = `Run a small program in Starlark, a deterministic dialect of Python, to compute or transform text. It reaches no file, network, clock or module.

read_input() returns input; emit(s) writes s to the result, without a newline. There is no recursion, import, class, try, f-string, json or re: use "%d of %s" % (n, s).

Example: {"source": "for w in sorted(read_input().split()):\n    emit(w + \"\\n\")", "input": "b a"} returns {"stdout": "a\nb\n"}.

Errors: EVAL_ERROR (details.position, details.backtrace) and OUTPUT_LIMIT, with details.stdout; TIMEOUT, MEMORY_LIMIT.`

// Name implements Tool.
func (t *Starlark) Name() string { return "starlark_run" }

// Definition implements Tool.
func (t *Starlark) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Dotted: "code.sandbox.starlark.run", Title: "Run a program in Starlark", Description: starlarkDescription,
		Input:    tool.InputSchema(starlarkArgs{}, tool.Strict, nil),
		Output:   tool.ReplySchema[starlarkReply](),
		ReadOnly: true, Idempotent: true,
	}
}

// A starlarkReply is the structuredContent of starlark_run.
type starlarkReply struct {
	Stdout string `json:"stdout"` // what the program emitted
}

// Call implements Tool.
func (t *Starlark) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &starlarkArgs{}
	if err := tool.Decode(arguments, a, tool.Strict); err != nil {
		return tool.Result{}, err
	}
	caller := tool.CallerOf(ctx)
	repo, err := caller.Repo(t.Repos, t.Repo, ", and a run is accounted to one")
	if err != nil {
		return tool.Result{}, err
	}
	// The output is neither stored nor redacted, because it can contain nothing that was not in the call.
	ran, err := run.Job{Caller: caller, Request: a.request(t.Name(), repo, caller)}.Do(ctx, t.Engine, nil,
		artifact.BeginOptions{Plain: true, View: artifact.View{Whole: a.bytes() + maxFailure}})
	if err != nil {
		return tool.Result{}, starlarkFailed(err)
	}
	stdout, err := a.reply(ran.Record, &ran.Output)
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Result{
		Structured: starlarkReply{stdout},
		Text:       fmt.Sprintf("%d bytes were emitted: they are in structuredContent.stdout", len(stdout)),
	}, nil
}

// starlarkFailed returns UNAVAILABLE if the supervisor has no interpreter, which is not a failure of corral: the operator has to
// install it.
func starlarkFailed(err error) error {
	var e *tool.Error
	if errors.As(err, &e) && e.Details["step"] == "tool" {
		e.Code = tool.CodeUnavailable
	}
	return err
}

func (a *starlarkArgs) request(tool, repo string, c tool.Caller) *job.Request {
	r := run.NewRequest(c, tool, repo)
	r.Runtime, r.Code, r.Stdin, r.Output, r.Usual.Wall = job.Starlark, &a.Source, a.Input, a.bytes(), DefaultStarlarkWall
	if a.Limits != nil && a.Limits.Wall != nil {
		r.Limits.Wall = a.time()
	}
	return r
}

// bytes returns how much the program may emit.
func (a *starlarkArgs) bytes() int64 {
	if a.Limits == nil {
		return DefaultStarlarkOutput << 10
	}
	return int64(a.Limits.Output) << 10
}

// time returns how long the program may run.
func (a *starlarkArgs) time() time.Duration {
	if a.Limits == nil || a.Limits.Wall == nil {
		return DefaultStarlarkWall
	}
	return time.Duration(*a.Limits.Wall) * time.Millisecond
}

// reply returns the program's output or its error. The job's own report is untrusted: it is accepted only if it is one of the
// interpreter's failures, and bounded in size.
func (a *starlarkArgs) reply(r *job.Record, c *artifact.Captured) (stdout string, err error) {
	switch {
	case r.Status == job.Denied:
		return "", deniedStarlark(r)
	case r.Status == job.Lost:
		return "", &tool.Error{Code: tool.CodeUnavailable, Message: "the run was interrupted: try again"}
	case r.Message != "":
		return "", &tool.Error{Code: tool.CodeInternal, Message: tool.Clean(r.Message)}
	}
	stdout = tool.UTF8(safe.Head(c.Stdout.Whole, int(a.bytes()))) // cut already, unless the interpreter is not ours any more
	f := a.failure(r, c)
	if f == nil {
		return stdout, nil
	}
	details := f.Details()
	// How far a script comes within its time or memory varies, and its reply must not.
	if stdout != "" && (f.Code == starlark.CodeEval || f.Code == starlark.CodeOutput) {
		details["stdout"] = stdout
	}
	return "", &tool.Error{Code: f.Code, Message: f.Message, Details: details}
}

// failure returns why the program failed, nil if it succeeded. If the supervisor enforced a limit, the result is the same
// as if the interpreter had.
func (a *starlarkArgs) failure(r *job.Record, c *artifact.Captured) *starlark.Failure {
	limit := r.Decision.Spec.Limits.Wall
	if limit <= 0 {
		limit = math.MaxInt64
	}
	switch {
	case c.Over || int64(len(c.Stdout.Whole)) > a.bytes():
		return &starlark.Failure{Code: tool.CodeOutputLimit, Message: fmt.Sprintf("the script emitted more than %d bytes", a.bytes())}
	case r.Status == job.Success:
		return nil
	case r.Result.Limit == job.LimitMemory:
		return starlark.OutOfMemory()
	case r.Status == job.Timeout:
		return starlark.TimedOut(job.StarlarkWall(a.time(), limit))
	case r.Status == job.Failure && r.Result.ExitCode > 0:
		return starlark.Ended(r.Result.ExitCode, []byte(c.Stderr.Whole))
	}
	return starlark.Ended(-1, []byte(c.Stderr.Whole)) // a signal, which a script cannot send
}

func deniedStarlark(r *job.Record) error {
	reasons := make([]string, 0, len(r.Decision.Reasons))
	for _, one := range r.Decision.Reasons {
		reasons = append(reasons, tool.Clean(one))
	}
	return &tool.Error{
		Code: tool.CodeDenied, Message: strings.Join(reasons, "; "),
		Details: map[string]any{"rule": r.Decision.Rule, "auditHash": r.Decision.Hash},
	}
}
