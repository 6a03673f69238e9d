package ctxtools

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// A Script is code that a tool of another package runs.
type Script struct {
	Tool   string // name of the called tool
	Caller tool.Caller
	Repo   string // id of a repository that the caller may use
	// Language is the language of the code.
	Language Language
	Code     string
	Dir      string // relative to the repository; "" is its root
	Network  string // see job.Request
	// QueueWait is how long the script waits for another job to end, see job.Request.
	QueueWait time.Duration
	// Input keeps the script's standard input open, see Process.Input. Otherwise it is empty.
	Input bool
}

// A Process is a Script that was started, see run.Process. It ends with its caller's session at the latest if it was
// detached, and otherwise when Cancel is called. Its methods may be called by several goroutines at once.
type Process struct {
	x *Suite
	b *background
}

// Launch starts a script in the session that its caller's scripts share, see job.Request.Share. The script runs until it ends,
// is cancelled, or has reached x.BackgroundLife. The caller must call Detach or Cancel, or wait until it is Done.
func (x *Suite) Launch(ctx context.Context, s Script) *Process {
	l := languageOf(s.Language)
	return &Process{x, x.launch(ctx, &scriptRun{
		tool: s.Tool, caller: s.Caller, repo: s.Repo, runtime: l.Runtime, code: l.Source(s.Code), dir: s.Dir, network: s.Network,
		label: languageLabel(l.Runtime), background: true, share: true, queueWait: s.QueueWait, input: s.Input,
	})}
}

// LaunchRequest is Launch for the request of another tool, which runs unchanged, for the time that it asks for: x.BackgroundLife is
// the maximum. label is the name of its output in the index.
func (x *Suite) LaunchRequest(ctx context.Context, c tool.Caller, r *job.Request, label string) run.Process {
	return &Process{x, x.launch(ctx, &scriptRun{
		tool: r.Tool, caller: c, repo: r.Repo, runtime: "shell", label: label, background: true, fixed: r,
	})}
}

// Started returns a channel that is closed when the process can be signaled.
func (p *Process) Started() <-chan struct{} { return p.b.started }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.b.done }

// Cancel ends the process and returns when it has ended.
func (p *Process) Cancel() {
	p.b.cancel()
	<-p.b.done
}

// Detach makes the process one of the background jobs of its caller's session, which Processes lists. Its output is indexed when
// it ends. ended reports that it had ended before; it is not listed then. The error is an *Error with code DENIED if the
// principal, or all principals together, have their maximum of background jobs; the process runs on then.
func (p *Process) Detach() (ended bool, err error) {
	if err := p.x.jobs.add(p.b, cmp.Or(p.x.MaxBackground, DefaultMaxBackground), p.x.MaxBackgroundAll); err != nil {
		return false, err
	}
	if _, ended, _ = p.b.detach(false); ended {
		p.x.jobs.forget(p.b)
	}
	return ended, nil
}

// Signal sends a signal by its name without SIG: TERM, INT, HUP, QUIT, KILL, USR1, USR2, STOP or CONT.
func (p *Process) Signal(name string) error {
	if !slices.Contains(jobSignalName("").Choices(), name) {
		return tool.Invalid("signal", "%q is not one of: %s", tool.Clip(name), strings.Join(jobSignalName("").Choices(), ", "))
	}
	return p.b.send(jobSignalName(name))
}

// Input writes text to the process's standard input and, with end, closes it. It returns the number of bytes written, which are less than
// those of text if the process has not read the rest by the deadline: then nothing is closed. The error is an *Error.
func (p *Process) Input(text string, end bool, deadline time.Time) (int, error) {
	b := p.b
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	w, running := b.stdin, b.out != nil
	b.mu.Unlock()
	switch {
	case !running:
		return 0, tool.Invalid("id", "job %s has ended", b.id)
	case !b.input:
		return 0, tool.Invalid("id", "job %s has no input: run it with input: true", b.id)
	case w == nil:
		return 0, tool.Invalid("id", "the input of job %s is closed, or it has not started yet", b.id)
	}
	err := w.SetWriteDeadline(deadline)
	n := 0
	if err == nil {
		n, err = io.WriteString(w, text)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, nil
	case err != nil:
		return n, tool.Invalid("id", "job %s has closed its input", b.id)
	case end:
		b.closeInput()
	}
	return n, nil
}

// Snapshot returns the current state. The error is corral's own failure to run the process, as an *Error where it is known.
func (p *Process) Snapshot() (run.Snapshot, error) {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	s := run.Snapshot{ID: b.id, Label: b.label, Repo: b.repo, Running: b.out != nil}
	if s.Running {
		s.Elapsed = time.Since(b.begun)
		s.Output.Stdout, s.Output.Stderr = b.out.Margins(artifact.Stdout), b.out.Margins(artifact.Stderr)
		return s, nil
	}
	s.Elapsed = b.ended.Sub(b.begun)
	if b.ran == nil {
		return s, b.err
	}
	s.Record, s.Output = b.ran.record, b.ran.out
	return s, nil
}

// Learn indexes the output of a process that ended without having been detached. It does not wait for the end of indexing;
// a search does.
func (p *Process) Learn(ctx context.Context) {
	ran, err := p.b.outcome()
	if err != nil || ran == nil {
		return
	}
	_ = p.x.indexLater(ctx, ran, ran.written()...) // logged
}

// Processes returns the background jobs of the caller's session, running or ended, the oldest first.
func (x *Suite) Processes(c tool.Caller) []*Process {
	var list []*Process
	for _, b := range x.jobs.of(ownerOf(c)) {
		list = append(list, &Process{x, b})
	}
	return list
}

// FindProcess returns the background job of the caller's session with this id. The error is an *Error with code NOT_FOUND.
func (x *Suite) FindProcess(c tool.Caller, id string) (*Process, error) {
	b, err := x.jobs.find(ownerOf(c), id)
	if err != nil {
		return nil, err
	}
	return &Process{x, b}, nil
}

// RepoOf returns the repository of a call: named, or if that is "" the default. The error is an *Error.
func (x *Suite) RepoOf(c tool.Caller, named string) (string, error) { return x.repo(c, named) }

// Stream writes a stored stream of the caller's output in repo to w, see Kept.
func (x *Suite) Stream(ctx context.Context, c tool.Caller, repo, handle, stream string, w io.Writer) error {
	if x.Outputs == nil {
		return errNotKept
	}
	return x.Outputs.Stream(ctx, artifact.Reader{Principal: c.Principal, Repos: []string{repo}}, handle, stream, w)
}

// A Recalled is what Recall found.
type Recalled struct {
	index.Found
	Pending int // outputs that are still being indexed
	Left    int // repositories that were not searched
}

// maxRecalled is the maximum number of repositories that Recall searches: each has a knowledge base of its own.
const maxRecalled = 16

// Recall searches what is indexed of the caller's output in the repository that is named or, if that is "", in all that the caller may
// use: those at the front of the list. The error is an *Error, or that of ctx.
func (x *Suite) Recall(ctx context.Context, c tool.Caller, named string, q index.Query) (*Recalled, error) {
	first, err := x.repo(c, named)
	if err != nil {
		return nil, err
	}
	repos := []string{first}
	for _, repo := range c.Served(x.Repos) {
		if named == "" && repo != first {
			repos = append(repos, repo)
		}
	}
	all := &Recalled{Left: max(0, len(repos)-maxRecalled)}
	for _, repo := range repos[:len(repos)-all.Left] {
		base, err := x.searchable(c, repo)
		if err != nil {
			return nil, err
		}
		x.waitIndexed(ctx, base)
		all.Pending += x.indexing(base)
		found, err := x.Knowledge.Search(ctx, base, q)
		if err != nil {
			return nil, indexError(ctx, err)
		}
		all.Hits, all.Matched = append(all.Hits, found.Hits...), all.Matched+found.Matched
	}
	if len(repos) > 1 { // scores of several knowledge bases cannot be compared
		slices.SortStableFunc(all.Hits, func(a, b index.Hit) int { return cmp.Compare(marked(b), marked(a)) })
	}
	all.Hits = all.Hits[:min(len(all.Hits), q.Limit)]
	return all, nil
}

// marked returns the number of different words of the query in a hit.
func marked(h index.Hit) int {
	words := map[string]bool{}
	for _, m := range h.Marks {
		words[strings.ToLower(h.Text[m[0]:m[1]])] = true
	}
	return len(words)
}

// Unavailable returns the error for a language whose program this host does not have. missing is job.Decision.Missing.
func Unavailable(l Language, missing string) *tool.Error {
	return unavailable(languageOf(l).Runtime, missing)
}

// NotRun reports whether the program of r was not executed; then r has a message.
func NotRun(r *job.Record) bool { return notRun(r) }

// Killed returns what killed a job, such as "Killed by SIGKILL (memory limit 2 GiB reached)"; "" if it ended by itself.
func Killed(r *job.Record) string { return killed(r) }
