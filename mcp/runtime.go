package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"corral/job"
	"corral/store/artifact"
)

// An Engine runs jobs. *job.Engine implements it.
type Engine interface {
	Run(ctx context.Context, r *job.Request, out job.Output, watch job.Watch) (*job.Record, error)
}

// Outputs captures the output of jobs. *artifact.Store implements it.
type Outputs interface {
	Begin(o artifact.BeginOptions) *artifact.Output
}

// Execute is the tool runtime_execute: it translates between the client's protocol and the engine.
type Execute struct {
	Engine  Engine
	Outputs Outputs  // nil stores nothing
	Repos   []string // ids of the served repositories
	// Secrets are values redacted from replies and artifacts: those of environment variables that jobs can have.
	Secrets []string
}

// Output modes.
const (
	modeMinimal = "minimal"
	modeSummary = "summary"
	modeIntent  = "intent"
)

// executeArgs are the arguments of runtime_execute.
type executeArgs struct {
	repo, runtime, executable string
	args                      []string
	code, stdin, dir          string
	timeout                   int // ms; 0 is not given
	terms                     []string
	lines                     int
	persist                   bool
	mode                      string
}

func newExecuteArgs() *executeArgs {
	return &executeArgs{dir: ".", lines: 100, persist: true, mode: modeMinimal}
}

// fields returns the table of arguments. Limits in KiB and MiB are in bytes, those of names in characters.
func (a *executeArgs) fields() []field {
	return []field{
		{name: "repoId", into: &a.repo, required: true, min: 1, max: 128, about: "which repository to run in: one that the server's instructions name, or a wrong one's error"},
		{name: "runtime", into: &a.runtime, required: true, enum: job.Runtimes(), about: "what the code is written in"},
		{
			name: "executable", into: &a.executable, max: 4096, noNUL: true,
			about: "the program to run it with, where the runtime has several; default: the first that is installed",
		},
		{
			name: "args", into: &a.args, items: 100, max: 128 << 10, bytes: true, noNUL: true,
			about: "arguments: of the code, or of the executable when there is no code",
		},
		{name: "code", into: &a.code, max: 1 << 20, bytes: true, noNUL: true, about: "source text to run; at most 1 MiB in UTF-8"},
		{name: "stdin", into: &a.stdin, max: 512 << 10, bytes: true, about: "standard input; at most 512 KiB in UTF-8"},
		{name: "relativeCwd", into: &a.dir, max: 4096, noNUL: true, about: "working directory, relative to the repository"},
		{
			name: "timeoutMs", into: &a.timeout, min: 100, max: 600_000,
			about: "time limit, compiling included; default: the configured maximum",
		},
		{
			name: "queryTerms", into: &a.terms, items: 10, min: 1, max: 1024, pattern: oneLine, expr: "^[^\\n]+$",
			about: "words to look for in the output, as they are, in either case: for modes summary and intent",
		},
		{name: "maxResponseLines", into: &a.lines, min: 10, max: 1000, about: "lines of output in mode summary"},
		{name: "persistOutput", into: &a.persist, about: "keep the output, to be read with runtime_query_output"},
		{
			name: "outputMode", into: &a.mode, enum: []string{modeMinimal, modeSummary, modeIntent},
			about: "minimal: counts only; summary: head and tail; intent: what matches queryTerms",
		},
	}
}

// oneLine reports whether s can be found in a line.
func oneLine(s string) bool { return !strings.ContainsRune(s, '\n') }

const executeDescription = `Run code or a program in a sandbox on one repository. 16 runtimes; no network; memory, processes and time are bounded. Files the code writes in the repository stay; everything else is gone when it ends. When a reply has changesHandle, they stay in a copy of this session's, until a person applies them.

Give code (source text; args go to it) or args (for the runtime's executable, e.g. runtime "node", args ["--version"]). For shell commands use runtime "shell" with code.

Choose outputMode by what you need to see:
- minimal (default): status, exit code, and how many lines and bytes there were; no output text. For builds, tests and anything whose exit code says it all. Read more later with runtime_query_output and the artifactHandle.
- summary: the first and last lines of stdout (maxResponseLines in all) and the last of stderr. For short output, or when you do not know what to look for. With queryTerms, matching excerpts as well.
- intent: only excerpts around lines that contain one of queryTerms. For long output of which you want one thing, e.g. ["error", "FAIL"].

status is success, failure (exit code, signal or limit: see exitCode, signal, limit, message), timeout, cancelled or denied (policyDecision.deniedReasons says why: change the request, do not repeat it; "Concurrency limit reached" may be repeated later). What was written before a timeout is kept. A failed compilation is failure with its diagnostics on stderr. Secrets in output are replaced by [REDACTED:...].`

// Name implements Tool.
func (t *Execute) Name() string { return "runtime_execute" }

// Definition implements Tool.
func (t *Execute) Definition() Definition {
	return Definition{
		Name: t.Name(), Dotted: "sdl.runtime.execute", Title: "Run code in a sandbox", Description: executeDescription,
		Input: inputSchema(newExecuteArgs().fields()), Output: executeSchema(),
		Destructive: true,
	}
}

func executeSchema() json.RawMessage {
	return replySchema(slices.Concat(properties{
		{"status", &schema{Type: "string", Enum: []string{"success", "failure", "timeout", "cancelled", "denied"}}},
		{"outputLines", integer("mode minimal: lines of both streams")},
		{"outputBytes", integer("mode minimal: bytes of both streams")},
		{"stdoutSummary", text("mode summary: head and tail")},
		{"stderrSummary", text("mode summary: tail")},
		{"excerpts", excerptsSchema("modes summary and intent: around what matches queryTerms")},
	}, outcomeSchema()))
}

// outcomeSchema describes the fields set by outcome, except status, whose values differ per tool.
func outcomeSchema() properties {
	return slices.Concat(properties{
		{"exitCode", &schema{Type: nullable("integer")}},
		{"signal", &schema{Type: nullable("string"), Description: "that ended it: SIGTERM"}},
		{"durationMs", integer("how long it ran")},
		{"message", text("what corral has to say: why it was not run, or what went wrong")},
		{"artifactHandle", &schema{Type: nullable("string"), Description: "for runtime_query_output"}},
		{"artifactReason", text("why the output was not kept")},
		{"truncation", &schema{Type: "object", Properties: properties{
			{"stdoutTruncated", boolean("")},
			{"stderrTruncated", boolean("")},
			{"totalStdoutBytes", integer("what the job wrote")},
			{"totalStderrBytes", integer("")},
		}}},
		{"policyDecision", &schema{Type: "object", Properties: properties{
			{"auditHash", text("of this decision on this request, as in the audit log")},
			{"deniedReasons", &schema{Type: "array", Items: text("")}},
		}}},
		{"usage", usageSchema()},
		{"limit", text("that was met: memory, pids, cpu, output, disk or files")},
		{"sensitiveChanges", &schema{
			Type: "array", Items: text(""),
			Description: "paths it made or changed that make tools outside run code or behave differently",
		}},
		{"sensitiveChangesMore", integer("how many more")},
		{"sensitiveChangesIncomplete", boolean("not everything was looked at")},
	}, overlaySchema())
}

func usageSchema() *schema {
	return &schema{Type: "object", Properties: properties{
		{"wallMs", integer("")},
		{"cpuMs", &schema{Type: nullable("integer")}},
		{"userMs", &schema{Type: nullable("integer")}},
		{"systemMs", &schema{Type: nullable("integer")}},
		{"peakMemoryBytes", &schema{Type: nullable("integer")}},
		{"peakPids", &schema{Type: nullable("integer")}},
		{"readBytes", &schema{Type: nullable("integer")}},
		{"writeBytes", &schema{Type: nullable("integer")}},
		{"queuedMs", integer("how long it waited for a place")},
	}}
}

// Call implements Tool.
func (t *Execute) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	a := newExecuteArgs()
	if err := decodeArguments(arguments, a.fields()); err != nil {
		return ToolResult{}, err
	}
	if a.code == "" && len(a.args) == 0 {
		return ToolResult{}, &Error{Code: CodeInvalid, Message: "code or args is required", Details: map[string]any{"argument": "code"}}
	}
	caller := CallerOf(ctx)
	if err := caller.mayUse(t.Repos, a.repo); err != nil {
		return ToolResult{}, err
	}
	request := a.request(t.Name(), caller)
	out := t.begin(a, request)
	record, err := t.Engine.Run(ctx, request, out, watch(caller))
	if err != nil {
		return ToolResult{}, failed(err)
	}
	reply := outcome(record)
	reply.show(out.Captured(), a.mode)
	return ToolResult{Structured: reply, Text: reply.words(), IsError: record.Status == job.Denied}, nil
}

func (t *Execute) begin(a *executeArgs, r *job.Request) *artifact.Output {
	o := artifact.BeginOptions{
		Repo: r.Repo, Runtime: r.Runtime, Principal: r.Principal, Persist: a.persist, Secrets: t.Secrets,
	}
	switch a.mode {
	case modeSummary:
		o.View = artifact.View{Lines: a.lines, Terms: a.terms, Fallback: true}
	case modeIntent:
		o.View.Terms = a.terms
	}
	if t.Outputs == nil {
		return (*artifact.Store)(nil).Begin(o)
	}
	return t.Outputs.Begin(o)
}

func (a *executeArgs) request(tool string, c Caller) *job.Request {
	r := &job.Request{
		Tool: tool, Principal: c.Principal, Session: c.Session, ID: c.Trace, Repo: a.repo, Runtime: a.runtime,
		Executable: a.executable, Args: a.args, Stdin: a.stdin, Dir: a.dir,
		Limits: job.Limits{Wall: time.Duration(a.timeout) * time.Millisecond},
	}
	if a.code != "" {
		r.Code = &a.code
	}
	return r
}

// watch returns a callback that sends progress to the client, or nil if the client did not request progress, so that
// no timer wakes up for it.
func watch(c Caller) job.Watch {
	if c.noProgress {
		return nil
	}
	return func(elapsed time.Duration, stdout, stderr int64) {
		seconds := elapsed.Round(time.Second)
		c.Progress(elapsed.Seconds(), fmt.Sprintf("running for %s, %d bytes of output so far", seconds, stdout+stderr))
	}
}

// failed converts an error of the engine to an *Error. The message is for people; the hint is in the details.
func failed(err error) error {
	if errors.Is(err, job.ErrUnavailable) {
		return &Error{Code: CodeUnavailable, Message: clean(err.Error())}
	}
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		e := &Error{Code: refusalCode(refusal), Message: clean(refusal.Message), Details: map[string]any{"step": refusal.Step}}
		if refusal.Hint != "" {
			e.Details["hint"] = refusal.Hint
		}
		return e
	}
	return err
}

// refusalCode returns the code for a refusal by the supervisor that is not about the job's parameters. In steps in
// which nothing of corral failed the code is UNAVAILABLE, and the message says what is missing: the repository, or
// capacity for a session or a job.
func refusalCode(r *job.Refusal) string {
	switch r.Step {
	case "repo", "session", "request":
		return CodeUnavailable
	}
	return CodeInternal
}

// words returns the text of a reply whose JSON is too long to be repeated as text.
func (r *executeReply) words() string {
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
