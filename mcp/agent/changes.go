package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"corral/job"
	"corral/mcp/ctxtools"
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
	Changes *job.Changes // of a list, or those that were given up
	// Newer has what changed in the repository since the session took its state, and NewerMore the number of further paths.
	Newer     []Newer
	NewerMore int
	// Kept are the sessions that ended with changes to the repository, newest first. No other session sees those.
	Kept []string
	// Conflicts are what both have changed, after the session took the repository's state.
	Conflicts []string
	// Missing describes what a diff does not contain, one line each.
	Missing []string
}

// A Newer is a path of the repository that changed since the session took the repository's state.
type Newer struct {
	Path    string // a directory ends with a slash
	Touched bool   // the session changed it, too
}

// changesArgs are the arguments of changes.
type changesArgs struct {
	Action string `arg:"action" enum:"list,diff,refresh,revert" default:"list"`
	Path   string `arg:"path,max=4096,nonul" also:"file,file_path,filePath" about:"only this file, or what is below this directory"`
	Repo   string `arg:"repoId,max=128" also:"repo"`
}

const changesDescription = `Review what your calls changed. With an overlay, the real files stay as they are until a person applies the changes. If people changed files meanwhile, refresh shows you theirs where you changed nothing; revert gives up your changes at path.`

// Name implements Tool.
func (t *Changes) Name() string { return "changes" }

// Definition implements Tool.
func (t *Changes) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Review changes", Description: changesDescription, Destructive: true, Idempotent: true,
		Input: tool.InputSchema(changesArgs{}, tool.Tolerant, func(s *tool.Schema) { plain(s, "path", "repoId") }),
	}
}

// Call implements Tool.
func (t *Changes) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &changesArgs{}
	if err := tool.Decode(arguments, a, tool.Tolerant); err != nil {
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
	switch {
	case a.Action == "diff":
		return t.diff(ctx, caller, repo, paths)
	case a.Action == "revert" && a.Path == "":
		return failed(tool.Invalid("path", "revert requires path: . is everything"))
	case a.Action == "revert" && len(paths) == 0:
		paths = []string{"."}
	case a.Action == "refresh" && a.Path != "":
		return failed(tool.Invalid("path", "refresh takes all that you have not changed: it has no path"))
	}
	var r *Review
	if a.Action == "list" {
		r, err = t.Review(ctx, caller, repo, paths, nil)
	} else {
		r, err = t.Refresh(ctx, caller, repo, paths)
	}
	switch {
	case err != nil:
		return failed(err)
	case r.Direct:
		return text(directText)
	case a.Action != "list":
		return text(refreshed(r))
	}
	return text(list(r, dir))
}

// refreshed returns the reply to a refresh or revert.
func refreshed(r *Review) string {
	var b strings.Builder
	more := 0
	if r.Changes != nil {
		more = writeLines(&b, "reverted ", fold(r.Changes.Entries, "")) + r.Changes.More
	}
	for _, n := range r.Newer {
		b.WriteString("newer    " + safe.Quote(n.Path) + "\n")
	}
	parts := []string{"you now see the repository's files wherever you changed nothing"}
	if more > 0 {
		parts = append(parts, ctxtools.Counted(more, "more reverted path"))
	}
	if r.NewerMore > 0 {
		parts = append(parts, ctxtools.Counted(r.NewerMore, "more newer path"))
	}
	if len(r.Conflicts) > 0 {
		parts = append(parts, "conflict, changed by you and in the repository: "+names(r.Conflicts, maxNamed)+
			"; to settle one, save your version outside of the repository, revert it, and make your change again")
	}
	return b.String() + run.Footer(parts)
}

// maxNamed is the maximum number of names in a footer.
const maxNamed = 8

// names lists at most n names.
func names(list []string, n int) string {
	var quoted []string
	for _, name := range list[:min(len(list), n)] {
		quoted = append(quoted, safe.Quote(name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(list) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// kept returns what a footer says about sessions that ended with changes; "" for none.
func kept(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	text := "changes of an earlier session are not in this one, and are kept: ask the user to apply them (corral changes apply " + ids[0] +
		") before you go on with that work; then changes {action: refresh}"
	if more := len(ids) - 1; more > 0 {
		text += fmt.Sprintf("; %d older ones: corral session list", more)
	}
	return text
}

// newer returns what a footer says about paths that are newer in the repository; "" for none.
func newer(list []Newer, more int) string {
	if len(list) == 0 {
		return ""
	}
	var untouched, both []string
	for _, n := range list {
		if n.Touched {
			both = append(both, n.Path)
		} else {
			untouched = append(untouched, n.Path)
		}
	}
	var parts []string
	if len(untouched) > 0 {
		parts = append(parts, names(untouched, maxNamed))
	}
	if len(both) > 0 {
		parts = append(parts, names(both, maxNamed)+" (changed by you, too)")
	}
	text := "changed in the repository since you began: " + strings.Join(parts, "; ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": changes {action: refresh} takes that"
}

const directText = "Your calls work on the repository itself: changes are in it already. See them with git status and git diff in run.\n"

// list returns changes as text, one line each; a new directory with many files, and a git directory, are one. dir is the directory
// that was asked for.
func list(r *Review, dir string) string {
	c := r.Changes
	var b strings.Builder
	var parts []string
	if c == nil || len(c.Entries) == 0 {
		parts = []string{"no changes"}
	} else {
		more := writeLines(&b, "", fold(c.Entries, dir)) + c.More
		parts = []string{ctxtools.Counted(len(c.Entries)+c.More, "change") + ", not applied"}
		if more > 0 {
			parts = append(parts, fmt.Sprintf("%d not shown: give path", more))
		}
		if c.Incomplete {
			parts = append(parts, "not all paths were examined")
		}
	}
	if text := newer(r.Newer, r.NewerMore); text != "" {
		parts = append(parts, text)
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
	shown := v.output(ctx, &run.State{Job: run.Job{Request: record.Request}, Record: record, Output: out.Captured()})
	var parts []string
	if written.n == 0 {
		parts = append(parts, "no changes that a diff can show")
	}
	parts = append(parts, r.Missing[:min(len(r.Missing), 10)]...)
	if text := newer(r.Newer, r.NewerMore); text != "" {
		parts = append(parts, text)
	}
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
