package agent

import (
	"context"
	"io"
	"strconv"
	"strings"

	"corral/internal/lazyregexp"
	"corral/job"
	"corral/mcp/ctxtools"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A view is how the reply to one call shows a process.
type view struct {
	*Suite
	caller   tool.Caller
	intent   string
	language ctxtools.Language // of a process that this call started; "" for others
	notes    []string          // further facts for the footer
	newer    func() []string   // what the footer says about changes of the repository; nil: nothing
	tail     int               // number of last lines to show; 0 shows all, or both ends
}

// reply returns the reply about a process: what it wrote, and how it ended or that it runs.
func (v *view) reply(ctx context.Context, p *run.Process) (tool.Result, error) {
	s, err := p.State()
	if err != nil {
		return failed(err)
	}
	r := s.Record
	switch {
	case s.Running:
		footer := append([]string{"job " + s.ID + " runs, " + run.Duration(s.Elapsed())}, v.listening(ctx, v.caller, s.Request.Repo)...)
		return text(run.WithFooter(v.output(ctx, &s).text, append(footer, v.notes...)))
	case r.Status == job.Denied:
		return failed(denied(r))
	case r.Decision.Missing != "" && v.language != "":
		return failed(ctxtools.Unavailable(v.language.Runtime(), r.Decision.Missing))
	case r.Status == job.Cancelled && !r.Result.Stopped && v.language != "" && len(v.notes) == 0:
		return failed(&tool.Error{Code: tool.CodeUnavailable, Message: "the server is shutting down"})
	case run.NotRun(r) && r.Status != job.Lost:
		_, end := run.ExitOf(r)
		return failed(&tool.Error{Code: tool.CodeUnavailable, Message: "not run: " + end.Message})
	}
	shown := v.output(ctx, &s)
	reply, err := text(run.WithFooter(shown.text, v.ending(&s, shown)))
	reply.Image = shown.image
	reply.IsError = r.Status == job.Lost // corral failed, not the program
	return reply, err
}

// denied returns the error for a job that the policy denied.
func denied(r *job.Record) error {
	return &tool.Error{Code: tool.CodeDenied, Message: "denied: " + tool.Clean(strings.Join(r.Decision.Reasons, "; "))}
}

// ending returns the parts of the footer about a process that has ended; none if there is nothing to say.
func (v *view) ending(s *run.State, shown shown) []string {
	r := s.Record
	parts := append(v.changes(r, s.Request.Repo), v.notes...)
	parts = append(parts, run.Reached(&r.Result)...)
	parts = append(parts, run.SessionNotes(r)...)
	if v.newer != nil {
		parts = append(parts, v.newer()...)
	}
	parts = append(parts, run.Left(r)...)
	written := []string{s.Output.Stderr.Head, s.Output.Stderr.Tail}
	if r.Status == job.Failure { // else standard output is a text that was shown, not a report
		written = append(written, s.Output.Stdout.Head, s.Output.Stdout.Tail)
	}
	if denied := run.Denied(r); len(denied) > 0 {
		parts = append(parts, denied...)
	} else if missing := unreachable(written...); missing != "" && r.Result.Network == nil {
		parts = append(parts, missing)
	}
	if why := explained(written...); why != "" {
		parts = append(parts, why)
	}
	if shown.handle != "" {
		parts = append(parts, shown.handle)
	}
	end := ended(r)
	switch {
	case end == "exit 0" && len(parts) == 0 && shown.text != "" && !likeFooter().MatchString(shown.text):
		return nil
	case end == "exit 0" && len(parts) == 0:
		return []string{end}
	}
	return append([]string{end, run.Duration(r.Result.Usage.Wall)}, parts...)
}

// likeFooter matches output whose last line could be taken for a footer: it ends with words in brackets, behind which only
// white space and control sequences of terminals follow. JSON is not meant.
var likeFooter = lazyregexp.New(`\[[a-zA-Z][^\n\r]*\](?:\s|[[:cntrl:]]|\x1b\[[0-9;?]*[a-zA-Z])*$`)

// ended returns how a job ended: "exit 1", "timeout", or what killed it.
func ended(r *job.Record) string {
	killed := run.Killed(r)
	switch {
	case r.Status == job.Timeout:
		return "ended at its time limit, " + seconds(r.Decision.Spec.Limits.Wall)
	case r.Status == job.Cancelled && !r.Result.Stopped:
		return "ended"
	case r.Status == job.Lost:
		return "the jail ended while it was running"
	case killed != "":
		return strings.ToLower(killed[:1]) + killed[1:]
	}
	return "exit " + strconv.Itoa(r.Result.ExitCode)
}

// A shown is the output in a reply: text that is empty or ends with a newline if more follows, what the footer says about the
// parts that are left out, and an image in place of standard output.
type shown struct {
	text, handle string
	image        *tool.Image
}

// output returns both streams. Up to maxWhole bytes are shown as they are.
func (v *view) output(ctx context.Context, s *run.State) shown {
	both := [2]stream{v.stream(ctx, s, artifact.Stdout), v.stream(ctx, s, artifact.Stderr)}
	image, about := v.picture(s, both[0])
	if about != "" {
		both[0] = stream{}
	}
	room := [2]int{maxWhole, maxWhole}
	cut := both[0].c.Size()+both[1].c.Size() > maxWhole
	if cut {
		for n := range room {
			if room[n] = maxWhole - int(min(both[1-n].c.Size(), maxWhole)); room[n] < maxWhole/2 {
				room[n] = maxWhole / 2
			}
		}
	}
	stdout, stderr := both[0].show(room[0], v), both[1].show(room[1], v)
	text := stdout
	if stderr != "" {
		text = run.Line(text) + "[stderr] " + stderr
	}
	out := shown{text: run.Line(text), image: image}
	var parts []string
	if about != "" {
		parts = append(parts, about)
	}
	over := s.Output.Stdout.Truncated || s.Output.Stderr.Truncated
	if over {
		parts = append(parts, run.OutputCut)
	}
	switch {
	case !cut && !over:
		if stderr == "" && !strings.HasSuffix(text, "\n") {
			out.text = text // as it was written, unless a footer follows
		}
	case s.Output.Handle != "":
		parts = append(parts, "output handle "+s.Output.Handle)
	case !s.Running:
		parts = append(parts, "output not stored")
	}
	out.handle = strings.Join(parts, ", ")
	return out
}

// stream returns one stream of a process.
func (v *view) stream(ctx context.Context, s *run.State, name string) stream {
	c := s.Output.Stdout
	if name == artifact.Stderr {
		c = s.Output.Stderr
	}
	one := stream{c: c}
	if s.Output.Handle != "" {
		one.read = func(w io.Writer) error {
			return v.Scripts.Stream(ctx, v.caller, s.Request.Repo, s.Output.Handle, name, w)
		}
	}
	return one
}

// changes returns what the footer says about files: how many differ from the repository, if that is not what an earlier reply of the
// session said, and which sensitive ones were changed.
func (v *view) changes(r *job.Record, repo string) []string {
	return run.Changed(r, v.seen.News(v.caller, repo, r.Changes))
}
