package execute

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"

	safe "corral/internal/text"
)

// Sandbox is the tool sandbox_exec: it runs a command in a system of the client session's own. Its texts are those of
// kilntainers, so that its clients work unchanged.
type Sandbox struct {
	Engine  run.Engine
	Outputs run.Outputs // captures the output without storing it; nil uses a capture of its own
	Repos   []string    // ids of the served repositories
	Repo    string      // repository that commands see; "" is the first that the caller may use
	// Workspaces are the workspace modes by repository, for the description only. The policy decides what a command may do.
	Workspaces map[string]job.Workspace
	Path       string        // path of the repository, for the description; "" if it depends on the caller
	Secrets    []string      // values redacted from replies
	Timeout    time.Duration // default timeout of a command; 0 is DefaultSandboxTimeout
	// OutputLimit is the maximum number of bytes of both streams together; 0 is DefaultSandboxOutput.
	OutputLimit int64
	Partial     bool // include partial output in the reply to a command that timed out
}

// Defaults of sandbox_exec.
const (
	DefaultSandboxTimeout = 2 * time.Minute
	DefaultSandboxOutput  = 2 << 20
)

const (
	maxSandboxStdin   = 2 << 20
	maxSandboxCommand = 128<<10 - 1 // MAX_ARG_STRLEN less the terminating NUL (execve(2))
	sandboxShell      = "/bin/bash"
)

// Exit codes of commands that corral ended.
const (
	exitTimedOut    = 124
	exitOutputLimit = 1
)

// sandboxArgs are the arguments of sandbox_exec. "", [] and null count as absent. check checks the bounds.
type sandboxArgs struct {
	Command   string   `arg:"command,max=131071,bytes"`
	Args      []string `arg:"args,items=4096,max=131071,bytes"`
	Stdin     string   `arg:"stdin,max=2MiB,bytes"`
	Directory string   `arg:"working_directory,max=4096" about:"absolute path; default /"`
	Timeout   *int     `arg:"timeout,min=1,max=2147483647" about:"seconds"`
}

const sandboxDescription = `Run a shell command in an isolated Linux system of your own. Files written anywhere (/, /home, /usr/local, /etc, /tmp) last for the session; variables, the working directory and processes do not.

Give command (for bash) or args (without a shell). The result is JSON: stdout, stderr, exit_code (124: timeout, 128+n: signal n), exec_duration_ms.

There is no network, no root and no apt. Of a command that writes more than 2 MiB nothing is returned: use head, tail or grep. Secrets in output become [REDACTED:...].

%s`

// repoDescription returns the part of the description about the repository: its path, and whether commands change it.
func (t *Sandbox) repoDescription() string {
	subject := "The repository"
	if t.Path != "" && len(t.Path) <= maxPathShown {
		subject += " is at " + safe.Quote(t.Path) + " and"
	} else {
		subject += " of the project is at its own absolute path and"
	}
	ids := t.Repos
	switch {
	case t.Repo != "":
		ids = []string{t.Repo}
	case t.Path != "": // all callers see the first repository
		ids = ids[:1]
	}
	seen := map[job.Workspace]bool{}
	for _, id := range ids {
		seen[t.workspace(id)] = true
	}
	switch {
	case len(seen) > 1:
		return subject + " may be the real directory (direct), read-only, or a copy: ask the operator before you change or delete files in it."
	case seen[job.Direct]:
		return subject + " is the real directory, not a copy: what you change or delete in it, .git included, is changed or deleted on the machine at once, and is not undone when the session ends."
	case seen[job.ReadOnly]:
		return subject + " is read-only."
	}
	return subject + " is a copy-on-write copy: only your later calls of this tool see changes in it, and people review and apply them (corral changes)."
}

// maxPathShown is the maximum length of a path included in the description, because hosts bound a description's length.
const maxPathShown = 300

// workspace returns the workspace mode of a repository. The default is the policy's, overlay.
func (t *Sandbox) workspace(id string) job.Workspace {
	if w, ok := t.Workspaces[id]; ok {
		return w
	}
	return job.Overlay
}

// Name implements Tool.
func (t *Sandbox) Name() string { return "sandbox_exec" }

// Definition implements Tool.
func (t *Sandbox) Definition() tool.Definition {
	usual := int(t.timeout() / time.Second)
	return tool.Definition{
		Name: t.Name(), Title: "Run a command in a sandbox of the session", Description: fmt.Sprintf(sandboxDescription, t.repoDescription()),
		Input: tool.InputSchema(sandboxArgs{}, tool.Unchecked, func(s *tool.Schema) { s.Property("timeout").Default = usual }), Destructive: true,
	}
}

func (t *Sandbox) timeout() time.Duration { return cmp.Or(t.Timeout, DefaultSandboxTimeout) }

func (t *Sandbox) limit() int64 {
	if t.OutputLimit == 0 {
		return DefaultSandboxOutput
	}
	return t.OutputLimit
}

// Call implements Tool. The reply is text only, for errors too.
func (t *Sandbox) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &sandboxArgs{}
	if err := tool.Decode(arguments, a, tool.Unchecked); err != nil {
		return tool.ErrorResult(err), nil
	}
	if err := a.check(); err != nil {
		return tool.ErrorResult(err), nil
	}
	reply, err := t.exec(ctx, a)
	if err != nil {
		return tool.ErrorResult(err), nil
	}
	return tool.Result{Text: reply.text(), Whole: true}, nil
}

// check validates the arguments, in the order and with the messages of the contract.
func (a *sandboxArgs) check() error {
	switch {
	case a.Command != "" && len(a.Args) > 0:
		return invalidSandbox("Cannot provide both 'command' and 'args'. Use 'command' for shell commands or 'args' for direct execution.")
	case a.Command == "" && len(a.Args) == 0:
		return invalidSandbox("Must provide either 'command' or 'args'.")
	case a.Directory != "" && !path.IsAbs(a.Directory):
		return invalidSandbox("working_directory must be an absolute path, got: %s", a.Directory)
	case a.Timeout != nil && *a.Timeout < 1:
		return invalidSandbox("timeout must be at least 1 second.")
	case len(a.Stdin) > maxSandboxStdin:
		return invalidSandbox("stdin content exceeds the 2 MiB limit (%d bytes). Split into smaller chunks or use a different approach.", len(a.Stdin))
	}
	return a.bounds()
}

// bounds rejects arguments that no command can have.
func (a *sandboxArgs) bounds() error {
	all := append(slices.Clone(a.Args), a.Command)
	for _, s := range all {
		switch {
		case len(s) > maxSandboxCommand:
			return invalidSandbox("a command or argument must have at most %d bytes: write a script to a file through stdin, and run that", maxSandboxCommand)
		case strings.IndexByte(s, 0) >= 0:
			return invalidSandbox("a command must not contain NUL bytes")
		}
	}
	if len(a.Directory) > 4096 || strings.IndexByte(a.Directory, 0) >= 0 {
		return invalidSandbox("working_directory must have at most 4096 bytes and no NUL byte")
	}
	return nil
}

func invalidSandbox(format string, values ...any) error {
	return &tool.Error{Code: tool.CodeInvalid, Message: fmt.Sprintf(format, values...)}
}

// exec runs the command in the caller's session.
func (t *Sandbox) exec(ctx context.Context, a *sandboxArgs) (*sandboxReply, error) {
	caller := tool.CallerOf(ctx)
	repo, err := caller.Repo(t.Repos, t.Repo, ", and a session needs one")
	if err != nil {
		return nil, err
	}
	request := t.request(a, repo, caller)
	running, stop := context.WithCancel(ctx)
	defer stop()
	out := t.begin(request, stop)
	record, err := t.Engine.Run(running, request, out, run.Progress(caller))
	if err != nil {
		return nil, run.Failed(err)
	}
	captured := out.Captured()
	if ctx.Err() != nil && record.Status == job.Cancelled {
		return nil, ctx.Err()
	}
	return t.reply(record, &captured)
}

func (t *Sandbox) request(a *sandboxArgs, repo string, c tool.Caller) *job.Request {
	r := &job.Request{
		Tool: t.Name(), Principal: c.Principal, Session: c.Session, ID: c.Trace, Repo: repo, Root: true,
		Command: a.Args, Stdin: a.Stdin, Dir: "/",
		Usual: job.Limits{Wall: t.timeout()},
	}
	if a.Timeout != nil {
		r.Limits.Wall = time.Duration(*a.Timeout) * time.Second
	}
	if a.Command != "" {
		r.Command = []string{sandboxShell, "-c", a.Command}
	}
	if a.Directory != "" {
		r.Dir = path.Clean(a.Directory)
	}
	return r
}

func (t *Sandbox) begin(r *job.Request, over func()) *artifact.Output {
	o := artifact.BeginOptions{
		Repo: r.Repo, Principal: r.Principal, Secrets: t.Secrets, View: artifact.View{Whole: t.limit(), Over: over},
	}
	return run.Begin(t.Outputs, o)
}
