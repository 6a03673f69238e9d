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
)

// Sandbox is the tool sandbox_exec: it runs a command in a system of the client session's own. Clients compare its texts, which must
// not change.
type Sandbox struct {
	Engine  run.Engine
	Outputs run.Outputs // captures the output without storing it; nil uses a capture of its own
	Repos   []string    // ids of the served repositories
	Repo    string      // repository of calls that name none; "" is the first that the caller may use
	// Workspaces are the workspace modes by repository, for the description only. The policy decides what a command may do.
	Workspaces map[string]job.Workspace
	// Paths are the repositories' paths by id, for directories relative to a repository.
	Paths map[string]string
	// Named says that the description may name all repositories and their paths: all callers may use them.
	Named bool
	// Learn indexes the stored output of a command whose reply does not have it; nil indexes nothing.
	Learn func(ctx context.Context, s run.State)
	// Launch starts a command that may outlive its call, see ctxtools.Suite; nil: there is no background.
	Launch func(ctx context.Context, j run.Job) *run.Process
	// Follow returns the call by which the caller follows the command in the background with this id.
	Follow func(id string) string
	// Ports returns where the commands of the caller's session listen; nil: it is not known.
	Ports   run.Ports
	Secrets []string      // values redacted from replies
	Timeout time.Duration // default timeout of a command; 0 is DefaultSandboxTimeout
	// MaxTimeout is the longest timeout that the policy allows in any of the repositories, for the schema; 0 publishes none.
	MaxTimeout time.Duration
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
	Directory string   `arg:"working_directory,max=4096" also:"cwd,relativeCwd" about:"absolute path; default /"`
	Timeout   *int     `arg:"timeout,min=1,max=2147483647" about:"seconds"`
	TimeoutMs *int     `arg:"timeoutMs,hidden,min=1,max=2147483647"`
	Repo      string   `arg:"repoId,hidden,max=128"`
	// Background lets the command run on. The contract's schema does not have it; the description names it.
	Background bool `arg:"background,hidden"`
	run.HiddenNetworkArg
}

// Name implements Tool.
func (t *Sandbox) Name() string { return "sandbox_exec" }

// Definition implements Tool.
func (t *Sandbox) Definition() tool.Definition {
	usual, found, lasting := int(t.timeout()/time.Second), "", ""
	if t.Learn != nil {
		found = foundLater
	}
	if t.Launch != nil {
		lasting = runsOn
	}
	return tool.Definition{
		Name: t.Name(), Title: "Run a command in a sandbox of the session",
		Description: fmt.Sprintf(sandboxDescription, lasting, found, t.repoDescription()),
		Input: tool.InputSchema(sandboxArgs{}, tool.Unchecked, func(s *tool.Schema) {
			p := s.Property("timeout")
			if p.Default = usual; t.MaxTimeout > 0 {
				longest := int(t.MaxTimeout / time.Second)
				p.Default, p.Maximum = min(usual, longest), &longest
			}
		}), Destructive: true,
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
	text, err := t.exec(ctx, a)
	if err != nil {
		return tool.ErrorResult(err), nil
	}
	return tool.Result{Text: text, Whole: true}, nil
}

// check validates the arguments, in the order and with the messages of the contract.
func (a *sandboxArgs) check() error {
	switch {
	case a.Command != "" && len(a.Args) > 0:
		return invalidSandbox("Cannot provide both 'command' and 'args'. Use 'command' for shell commands or 'args' for direct execution.")
	case a.Command == "" && len(a.Args) == 0:
		return invalidSandbox("Must provide either 'command' or 'args'.")
	case a.Directory != "" && !path.IsAbs(a.Directory) && a.Repo == "":
		return invalidSandbox("working_directory must be an absolute path, got: %s", a.Directory)
	case a.Timeout != nil && a.TimeoutMs != nil:
		return invalidSandbox("Cannot provide both 'timeout' (seconds) and 'timeoutMs' (milliseconds).")
	case a.Timeout != nil && *a.Timeout < 1, a.TimeoutMs != nil && *a.TimeoutMs < 1:
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

// exec runs the command in the caller's session, and returns the text of the reply.
func (t *Sandbox) exec(ctx context.Context, a *sandboxArgs) (string, error) {
	caller := tool.CallerOf(ctx)
	repo, err := t.repo(a, caller)
	if err != nil {
		return "", err
	}
	request, err := t.request(a, repo, caller)
	if err != nil {
		return "", err
	}
	j := run.Job{Caller: caller, Request: request, Label: t.Name()}
	if a.Background {
		return t.background(ctx, a, j)
	}
	reply, err := t.run(ctx, a, j)
	if err != nil {
		return "", err
	}
	return reply.text(), nil
}

// run runs the command to its end.
func (t *Sandbox) run(ctx context.Context, a *sandboxArgs, j run.Job) (*sandboxReply, error) {
	ran, err := j.Do(ctx, t.Engine, t.Outputs, artifact.BeginOptions{
		Secrets: t.Secrets, Persist: t.Learn != nil, View: artifact.View{Whole: t.limit()},
	})
	if err != nil {
		return nil, err
	}
	if t.Learn != nil && (ran.Output.Over || ran.Record.Status == job.Timeout) {
		t.Learn(ctx, ran)
	}
	return t.reply(ran.Record, &ran.Output, a.limit())
}

// repo returns the repository of a call.
func (t *Sandbox) repo(a *sandboxArgs, c tool.Caller) (string, error) {
	if a.Repo == "" {
		return c.Repo(t.Repos, t.Repo, ", and a session needs one")
	}
	return a.Repo, c.MayUse(t.Repos, a.Repo)
}

// limit returns the requested timeout, 0 if there is none.
func (a *sandboxArgs) limit() time.Duration {
	switch {
	case a.TimeoutMs != nil:
		return time.Duration(*a.TimeoutMs) * time.Millisecond
	case a.Timeout != nil:
		return time.Duration(*a.Timeout) * time.Second
	}
	return 0
}

func (t *Sandbox) request(a *sandboxArgs, repo string, c tool.Caller) (*job.Request, error) {
	r := run.NewRequest(c, t.Name(), repo)
	r.Root, r.Command, r.Stdin, r.Dir = true, a.Args, a.Stdin, "/"
	r.Usual.Wall = cmp.Or(a.limit(), t.timeout()) // lowered to the operator's maximum
	var err error
	if r.Network, err = a.Asked(); err != nil {
		return nil, err
	}
	if a.Command != "" {
		r.Command = []string{sandboxShell, "-c", a.Command}
	}
	switch {
	case path.IsAbs(a.Directory):
		r.Dir = path.Clean(a.Directory)
	case a.Directory != "":
		dir, err := tool.InRepo("", "working_directory", a.Directory)
		if err != nil {
			return nil, err
		}
		r.Dir = path.Join(t.Paths[repo], dir)
	}
	return r, nil
}
