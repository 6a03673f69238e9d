package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"corral/mcp/ctxtools"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// Run is the tool run: it runs a command or code in the caller's session.
type Run struct{ *Suite }

// runArgs are the arguments of run.
type runArgs struct {
	Code       string `arg:"code,required,min=1,max=1MiB,bytes,nonul" also:"command,cmd,script" about:"shell command or script, or source text in language"`
	Language   string `arg:"language,max=64" also:"lang,runtime"`
	Dir        string `arg:"cwd,max=4096,nonul" also:"relativeCwd,working_directory,workdir,directory" about:"directory to run in; default: the repository"`
	Timeout    *int   `arg:"timeout,min=1,max=1048576MiB"`
	TimeoutMs  *int   `arg:"timeoutMs,hidden,min=1,max=1048576MiB"`
	Intent     string `arg:"intent,max=1KiB" about:"what you look for: of long output, the lines that match are shown instead of most others"`
	Background bool   `arg:"background" also:"run_in_background" about:"reply at once and let it run: see tool job"`
	Input      bool   `arg:"input" about:"keep standard input open, for tool job"`
	Reset      bool   `arg:"reset" about:"begin with a new HOME and /tmp, without changes that are not applied; background jobs go on in the old ones"`
	Repo       string `arg:"repoId,max=128" also:"repo"`
}

const (
	defaultTimeout = 60 * time.Second
	// queueTime is how long a call waits for another job to end.
	queueTime = 30 * time.Second
	// backgroundTime is how long a call with background waits for a command that fails at once.
	backgroundTime = 500 * time.Millisecond
)

const runDescription = `Run a shell command, or code, in a sandbox on the repository. You get its output as it is and, unless all went well, a last line such as [exit 1, 2.1 s].

Calls share the repository, HOME and /tmp with build caches, and 127.0.0.1: start a server with background, then query it. Each call is a new shell in cwd, without variables of earlier ones. No other network, except hosts that the operator allows: what is not installed, ask the user for.

After timeout it goes on as a background job; nothing is lost. Output over 16 KB is shown in parts, with a handle for tool output. A PNG or JPEG on standard output (cat plot.png) is shown to you as an image.`

// Name implements Tool.
func (t *Run) Name() string { return "run" }

// Definition implements Tool.
func (t *Run) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Run a command", Description: runDescription, Destructive: true,
		Input: tool.InputSchema(runArgs{}, tool.Tolerant, func(s *tool.Schema) {
			s.Property("language").Description = installed(t.runtimes())
			s.Property("timeout").Description = t.timeoutText()
			plain(s, "code", "language", "cwd", "timeout", "intent", "background", "input", "reset", "repoId")
		}),
	}
}

// plain removes from a schema the bounds of arguments, whose violation is an error that says what is accepted, and the default false.
func plain(s *tool.Schema, names ...string) {
	for _, name := range names {
		p := s.Property(name)
		if p.Minimum, p.Maximum, p.MinLength, p.MaxLength = nil, nil, 0, 0; p.Default == false {
			p.Default = nil
		}
	}
}

// Call implements Tool.
func (t *Run) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &runArgs{}
	if err := tool.Decode(arguments, a, tool.Tolerant); err != nil {
		return failed(err)
	}
	j, language, err := t.job(ctx, a)
	if err != nil {
		return failed(err)
	}
	c, repo := j.Caller, j.Request.Repo
	if a.Reset && t.Reset != nil {
		t.Reset(c.Principal, c.Session, repo)
		t.seen.End(c.Principal, c.Session)
	}
	wait, notes := t.wait(a)
	v := &view{Suite: t.Suite, caller: c, intent: a.Intent, language: language, notes: notes}
	ask, done := context.WithCancel(ctx)
	defer done()
	v.newer = t.newer(ask, c, repo)
	return t.finish(ctx, v, t.Scripts.Launch(ctx, j), wait, a.Background)
}

// newerPatience is how much longer than its command a call waits to learn what is newer in the repository.
const newerPatience = 200 * time.Millisecond

// newer begins to look for what changed in the repository since the session took its state, beside the command. The function that
// it returns says that, unless an earlier reply has.
func (t *Run) newer(ctx context.Context, c tool.Caller, repo string) func() []string {
	if t.Newer == nil {
		return nil
	}
	found := make(chan *Review, 1)
	go func() { found <- t.Newer(ctx, c, repo) }()
	return func() (parts []string) {
		select {
		case r := <-found:
			for n, text := range []string{kept(r.Kept), newer(r.Newer, r.NewerMore)} {
				if t.seen.IsNews(c, repo, strconv.Itoa(n), text) {
					parts = append(parts, text)
				}
			}
		case <-time.After(newerPatience):
		}
		return parts
	}
}

// job returns what a call runs, and in which language.
func (t *Run) job(ctx context.Context, a *runArgs) (j run.Job, l ctxtools.Language, err error) {
	caller := tool.CallerOf(ctx)
	repo, err := t.Scripts.RepoOf(caller, a.Repo)
	if err != nil {
		return j, "", err
	}
	if l, err = languageOf(a.Language); err != nil {
		return j, "", err
	}
	dir, err := tool.InRepo(t.Scripts.Paths[repo], "cwd", a.Dir)
	if err != nil {
		return j, "", err
	}
	j = ctxtools.Script(caller, t.Name(), repo, l, a.Code)
	r := j.Request
	r.Dir, r.Share, r.QueueWait, r.Streamed = dir, true, t.queueTime(), a.Input
	return j, l, nil
}

// wait returns how long a call waits for the end, and what its reply says about that.
func (t *Run) wait(a *runArgs) (time.Duration, []string) {
	var asked *time.Duration
	switch {
	case a.TimeoutMs != nil:
		asked = new(time.Duration(*a.TimeoutMs) * time.Millisecond)
	case a.Timeout != nil:
		asked = new(time.Duration(min(*a.Timeout, 1<<30)) * time.Second)
	}
	wait := t.timeout(asked)
	var notes []string
	if asked != nil && *asked > wait {
		notes = append(notes, "timeout cut to "+seconds(wait)+", the maximum")
	}
	if a.Background {
		wait = backgroundTime
	}
	return wait, notes
}

// timeout returns the timeout of a call that asks for asked; nil asks for none.
func (x *Suite) timeout(asked *time.Duration) time.Duration {
	if asked == nil {
		return min(defaultTimeout, x.maxTimeout())
	}
	return min(*asked, x.maxTimeout())
}

// timeoutText describes the argument timeout.
func (x *Suite) timeoutText() string {
	return fmt.Sprintf("seconds to wait, default %d, at most %d", int(x.timeout(nil).Seconds()), int(x.maxTimeout().Seconds()))
}

func (x *Suite) maxTimeout() time.Duration {
	if x.MaxTimeout > 0 {
		return x.MaxTimeout
	}
	return DefaultMaxTimeout
}

func (x *Suite) runtimes() []string {
	if x.Scripts == nil {
		return nil
	}
	return x.Scripts.Runtimes
}

// finish waits for a process, and replies. A process that does not end in time becomes a background job or, if the caller has its
// maximum of those, is ended.
func (t *Run) finish(ctx context.Context, v *view, p *run.Process, wait time.Duration, background bool) (tool.Result, error) {
	switch ended := p.Await(ctx, wait, t.queueTime()); {
	case ctx.Err() != nil:
		p.Cancel()
		return failed(ctx.Err())
	case ended:
		p.Learn(ctx)
		return v.reply(ctx, p)
	}
	ended, err := p.Detach()
	switch {
	case err != nil:
		p.Cancel()
		p.Learn(ctx)
		v.notes = append(v.notes, "ended after "+seconds(wait)+": "+tool.AsError(err).Message)
		return v.reply(ctx, p)
	case ended:
		p.Learn(ctx)
		return v.reply(ctx, p)
	case !background:
		v.notes = append(v.notes, "timeout after "+seconds(wait))
	}
	return v.reply(ctx, p)
}

func (x *Suite) queueTime() time.Duration { return cmp.Or(x.queue, queueTime) }
