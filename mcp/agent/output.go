package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corral/mcp/ctxtools"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// Output is the tool output: it reads the stored output of one run, and searches that of all.
type Output struct{ *Suite }

// outputArgs are the arguments of output.
type outputArgs struct {
	Handle string   `arg:"handle,max=256" also:"artifactHandle" about:"of a run, or the id of a job"`
	Lines  string   `arg:"lines,max=64" also:"lineRange" about:"100-250, or -50 for the last 50"`
	Terms  []string `arg:"terms,items=10,min=1,max=1KiB" also:"queryTerms" about:"show the lines that contain one of these"`
	Stream string   `arg:"stream" enum:"stdout,stderr" default:"stdout"`
	Search string   `arg:"search,max=4096" also:"query" about:"words; places that have all of them come first. Runs of earlier sessions count, too"`
	Repo   string   `arg:"repoId,max=128" also:"repo" about:"of search; default: all"`
}

const outputDescription = `Read the output of an earlier run: handle, with lines or terms. Or search the output of all earlier runs, also of those that showed no handle. Nothing is run again.`

// Bounds of a reply of output.
const (
	maxExcerpts   = 20
	excerptLines  = 1 // around a line that has a term
	maxOutputRead = 16 << 10
)

// Name implements Tool.
func (t *Output) Name() string { return "output" }

// Definition implements Tool.
func (t *Output) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Read earlier output", Description: outputDescription, ReadOnly: true, Idempotent: true,
		Input: tool.InputSchema(outputArgs{}, tool.Tolerant, func(s *tool.Schema) {
			plain(s, "handle", "lines", "search", "repoId")
			terms := s.Property("terms")
			terms.MaxItems, terms.Items = 0, &tool.Schema{Type: "string"}
		}),
	}
}

// Call implements Tool.
func (t *Output) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &outputArgs{}
	if err := tool.Decode(arguments, a, tool.Tolerant); err != nil {
		return failed(err)
	}
	switch {
	case a.Search != "" && a.Handle == "":
		return t.search(ctx, a)
	case a.Search != "": // words in one output
		a.Terms = append(a.Terms, strings.Fields(a.Search)...)
		a.Terms = a.Terms[:min(len(a.Terms), 10)]
	case a.Handle == "":
		return failed(tool.Invalid("handle", "is required, from the last line of a reply of run; or use search, with words to look for in all output"))
	}
	return t.read(ctx, a)
}

// read reads lines of one output.
func (t *Output) read(ctx context.Context, a *outputArgs) (tool.Result, error) {
	handle, err := t.handle(ctx, a.Handle)
	if err != nil {
		return failed(err)
	}
	if t.Artifacts == nil {
		return failed(&tool.Error{Code: tool.CodeUnsupported, Message: "output is not stored on this server"})
	}
	c := tool.CallerOf(ctx)
	q := artifact.Query{
		Reader: artifact.Reader{Principal: c.Principal, Repos: c.Repos}, Handle: handle, Stream: a.Stream,
		Terms: a.Terms, Context: excerptLines,
	}
	if len(a.Terms) > 0 {
		q.Excerpts = maxExcerpts
	}
	if a.Lines != "" || len(a.Terms) == 0 {
		from, to, err := lineRange(a.Lines)
		if err == nil && from < 0 {
			from, to, err = t.last(ctx, q, -from)
		}
		if err != nil {
			return failed(err)
		}
		q.Range = &artifact.Range{Stream: a.Stream, Start: from, End: to}
	}
	found, err := t.Artifacts.Query(ctx, q)
	if err != nil {
		return failed(unreadable(a.Handle, err))
	}
	return text(show(found, a))
}

// last returns the range of the last n lines.
func (t *Output) last(ctx context.Context, q artifact.Query, n int64) (from, to int64, err error) {
	q.Terms, q.Excerpts, q.Range = nil, 0, &artifact.Range{Stream: q.Stream, Start: 1, End: 1}
	found, err := t.Artifacts.Query(ctx, q)
	if err != nil {
		return 0, 0, unreadable(q.Handle, err)
	}
	return max(1, found.Lines-n+1), max(1, found.Lines), nil
}

// handle returns the handle of an output that is named by its handle or by the id of its job.
func (t *Output) handle(ctx context.Context, name string) (string, error) {
	name = strings.TrimSpace(name)
	if !strings.HasPrefix(name, "bg_") {
		return name, nil
	}
	p, err := t.Scripts.FindProcess(tool.CallerOf(ctx), name)
	if err != nil {
		return "", err
	}
	s, err := p.State()
	switch {
	case err != nil:
		return "", err
	case s.Running:
		return "", &tool.Error{Code: tool.CodeUnavailable, Message: "job " + s.ID + " still runs: tool job, action tail, shows its last lines"}
	case s.Output.Handle == "":
		return "", &tool.Error{Code: tool.CodeNotFound, Message: "the output of job " + s.ID + " was not stored"}
	}
	return s.Output.Handle, nil
}

// lineRange parses "A-B", "A", "A-" or "-N"; from is negative for the last N lines. "" is as much from the start as a reply shows.
func lineRange(s string) (from, to int64, err error) {
	bad := tool.Invalid("lines", "%q is not a range of lines such as 100-250, or -50 for the last 50", tool.Clip(s))
	first, last, isRange := strings.Cut(strings.NewReplacer(" ", "", "[", "", "]", "", ",", "-", ":", "-", "–", "-").Replace(s), "-")
	const all = 1 << 40
	from, to = 1, all
	if first != "" {
		if from, err = strconv.ParseInt(first, 10, 64); err != nil || from < 1 {
			return 0, 0, bad
		}
		if to = from; isRange {
			to = all
		}
	}
	if last != "" {
		if to, err = strconv.ParseInt(last, 10, 64); err != nil || to < 1 {
			return 0, 0, bad
		}
		if first == "" {
			return -min(to, all), 0, nil
		}
	}
	if to < from {
		return 0, 0, bad
	}
	return from, min(to, all), nil
}

// show returns what was read as text.
func show(found *artifact.Answer, a *outputArgs) string {
	if found.Match == artifact.NoMatch || len(found.Excerpts) == 0 {
		return run.Footer([]string{fmt.Sprintf("no line of %s has a term, of %s", a.Stream, ctxtools.Counted(int(found.Lines), "line"))})
	}
	body, from, to, cut := excerpts(found)
	parts := []string{}
	switch {
	case found.Match == artifact.LineRead:
		parts = append(parts, fmt.Sprintf("lines %d-%d of %d", from, to, found.Lines))
		if cut && to < found.Lines {
			parts = append(parts, fmt.Sprintf("go on with lines %d-", to+1))
		}
	case cut || len(found.Excerpts) == maxExcerpts:
		parts = append(parts, fmt.Sprintf("the first matches of %d lines: use lines or rarer terms", found.Lines))
	}
	return body + run.Footer(parts)
}

// excerpts returns what was read, at most about maxOutputRead bytes: a range of lines as it is, matches with the numbers of
// their lines. The first excerpt has the lines from to to; cut reports whether something is left out.
func excerpts(found *artifact.Answer) (body string, from, to int64, cut bool) {
	var b strings.Builder
	cut = found.Truncated
	shown := int64(0) // the last line of the matches before
	for n, e := range found.Excerpts {
		content := tool.Clean(e.Content)
		if matched := found.Match == artifact.Matched || n > 0; matched {
			content = after(number(content, e.LineStart), shown-e.LineStart+1) // what is around matches can overlap
			if n > 0 && (shown == 0 || e.LineStart > shown+1) {
				b.WriteString("…\n")
			}
			shown = max(shown, e.LineEnd)
		}
		kept, lines := fit(content, maxOutputRead-b.Len())
		b.WriteString(run.Line(kept))
		if n == 0 {
			from, to = e.LineStart, e.LineStart+lines-1
		}
		if len(kept) < len(content) {
			return b.String(), from, to, true
		}
	}
	return b.String(), from, to, cut
}

// after returns s without its first n lines.
func after(s string, n int64) string {
	for ; n > 0 && s != ""; n-- {
		_, s, _ = strings.Cut(s, "\n")
	}
	return s
}

// fit returns the first lines of s with at most room bytes, at least one, and their number.
func fit(s string, room int) (string, int64) {
	if len(s) > room {
		cut := strings.LastIndexByte(s[:max(room, 0)], '\n')
		if cut < 0 {
			cut = strings.IndexByte(s, '\n')
		}
		if cut >= 0 {
			s = s[:cut]
		}
	}
	return s, int64(strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1)
}

// number puts their numbers before lines.
func number(s string, from int64) string {
	var b strings.Builder
	for text := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		fmt.Fprintf(&b, "%d: %s\n", from, text)
		from++
	}
	return b.String()
}

// unreadable converts an error of reading an output.
func unreadable(handle string, err error) error {
	switch {
	case errors.Is(err, artifact.ErrNotFound):
		return &tool.Error{Code: tool.CodeNotFound, Message: fmt.Sprintf("there is no output %q: handles are in the last line of a reply of run, and search finds them", tool.Clip(handle))}
	case errors.Is(err, artifact.ErrExpired):
		return &tool.Error{Code: tool.CodeExpired, Message: "this output has expired: run it again"}
	case errors.Is(err, artifact.ErrCorrupt):
		return &tool.Error{Code: tool.CodeCorrupt, Message: "this output is damaged: run it again"}
	}
	return err
}

// search searches all output.
func (t *Output) search(ctx context.Context, a *outputArgs) (tool.Result, error) {
	found, err := t.Scripts.Recall(ctx, tool.CallerOf(ctx), a.Repo, index.Query{Text: a.Search, Limit: maxHits})
	if err != nil {
		return failed(err)
	}
	return text(hits(found, a.Search, time.Now()))
}
