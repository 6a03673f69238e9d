package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"corral/job"
	"corral/mcp/ctxtools/answer"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"

	safe "corral/internal/text"
)

// Changes is the tool changes: it shows what the jobs of the caller's session changed behind an overlay.
type Changes struct{ *Suite }

// A Review is what the jobs of a session changed in a repository.
type Review struct {
	// Direct says that there is no overlay: the jobs write to the repository itself.
	Direct  bool
	Changes *job.Changes // of a list
	// Missing describes what a diff does not contain, one line each.
	Missing []string
}

// changesArgs are the arguments of changes.
type changesArgs struct {
	Action string `arg:"action" enum:"list,diff" default:"list"`
	Path   string `arg:"path,max=4096,nonul" about:"only this file, or what is below this directory"`
	Repo   string `arg:"repoId,max=128"`
}

const changesDescription = `Review what your calls changed. In a repository with an overlay the real files stay as they are until a person applies the changes; of one without, this says so.`

// Name implements Tool.
func (t *Changes) Name() string { return "changes" }

// Definition implements Tool.
func (t *Changes) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Review changes", Description: changesDescription, ReadOnly: true, Idempotent: true,
		Input: tool.InputSchema(changesArgs{}, tool.Tolerant, func(s *tool.Schema) { plain(s, "path", "repoId") }),
	}
}

// Call implements Tool.
func (t *Changes) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &changesArgs{}
	if err := decode(arguments, a, "action", "path", "repoId"); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.Scripts.RepoOf(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	dir, err := tool.InRepo(t.Scripts.Paths[repo], "path", a.Path)
	if err != nil {
		return failed(err)
	}
	if t.Review == nil {
		return failed(&tool.Error{Code: tool.CodeUnsupported, Message: "changes are not listed on this server"})
	}
	var paths []string
	if dir != "" {
		paths = []string{dir}
	}
	if a.Action == "diff" {
		return t.diff(ctx, caller, repo, paths)
	}
	r, err := t.Review(ctx, caller, repo, paths, nil)
	if err != nil {
		return failed(err)
	}
	if r.Direct {
		return text(directText)
	}
	return text(list(r.Changes))
}

const directText = "Your calls work on the repository itself: changes are in it already. See them with git diff in run.\n"

// list returns changes as text, one line each.
func list(c *job.Changes) string {
	if c == nil || len(c.Entries) == 0 {
		return "[no changes]"
	}
	var b strings.Builder
	for _, e := range c.Entries {
		name := safe.Quote(e.Path)
		if e.Type == job.TypeDirectory {
			name += "/"
		}
		fmt.Fprintf(&b, "%-8s %s", e.Kind, name)
		if e.Sensitive {
			b.WriteString("  (sensitive)")
		}
		b.WriteByte('\n')
	}
	parts := []string{answer.Counted(len(c.Entries)+c.More, "change") + ", not applied"}
	if c.More > 0 {
		parts = append(parts, fmt.Sprintf("%d not shown: give path", c.More))
	}
	if c.Incomplete {
		parts = append(parts, "not all paths were examined")
	}
	return b.String() + run.Footer(parts)
}

// diff returns the difference between the repository and what the session's jobs see. A long one is stored, like the output of
// a run.
func (t *Changes) diff(ctx context.Context, c tool.Caller, repo string, paths []string) (tool.Result, error) {
	out := t.capture(c, repo, artifact.BeginOptions{Runtime: "patch", Persist: true, View: artifact.View{Ends: maxWhole}})
	defer out.Discard() // does nothing after Finish
	stdout, stderr, err := out.Streams()
	if err != nil {
		return failed(err)
	}
	written := &counter{w: stdout}
	r, err := t.Review(ctx, c, repo, paths, &patchText{w: written})
	stdout.Close()
	stderr.Close()
	switch {
	case err != nil:
		return failed(err)
	case r.Direct:
		return text(directText)
	}
	record := &job.Record{Status: job.Success, Request: &job.Request{Repo: repo}}
	out.Finish(record)
	v := &view{Suite: t.Suite, caller: c}
	shown := v.output(ctx, &run.Snapshot{Repo: repo, Record: record, Output: out.Captured()})
	var parts []string
	if written.n == 0 {
		parts = append(parts, "no changes that a diff can show")
	}
	parts = append(parts, r.Missing[:min(len(r.Missing), 10)]...)
	if shown.handle != "" {
		parts = append(parts, shown.handle)
	}
	return text(run.WithFooter(shown.text, parts))
}

// A counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
