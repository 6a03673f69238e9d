package agent

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/workspace/edit"
)

// Edit is the tool edit: it changes files of the repository as the jobs of the caller's session see it.
type Edit struct{ *Suite }

// editArgs are the arguments of edit. Package edit checks the rest.
type editArgs struct {
	Path  string  `arg:"path,max=4096,nonul" also:"file,file_path,filePath" about:"file to change; required without patch"`
	Old   *string `arg:"old" also:"old_string,old_str" about:"text to replace, which occurs exactly once; \"\" creates the file"`
	New   *string `arg:"new" also:"new_string,new_str" about:"text to put there; required with old"`
	Patch *string `arg:"patch" about:"unified diff, instead of path, old and new"`
	All   bool    `arg:"replaceAll" also:"replace_all"`
	Repo  string  `arg:"repoId,max=128" also:"repo"`
}

const editDescription = `Replace a text in a file, create one, or apply a unified diff to several. All or nothing for each file. You get a short diff, or the nearest text if it does not fit.`

// editTime is the timeout of an edit. It waits for other edits in the same directory.
const editTime = 30 * time.Second

// maxReport is the maximum number of bytes of an edit's report or error.
const maxReport = 64 << 10

// Name implements Tool.
func (t *Edit) Name() string { return "edit" }

// Definition implements Tool.
func (t *Edit) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Edit a file", Description: editDescription, Destructive: true,
		Input: tool.InputSchema(editArgs{}, tool.Tolerant, func(s *tool.Schema) { plain(s, "path", "replaceAll", "repoId") }),
	}
}

// Call implements Tool.
func (t *Edit) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &editArgs{}
	if err := tool.Decode(arguments, a, tool.Tolerant); err != nil {
		return failed(err)
	}
	r := edit.Request{Path: a.Path, Old: a.Old, New: a.New, Patch: a.Patch, All: a.All}
	if err := r.Check(); err != nil {
		return failed(tool.Invalid("", "%s", err))
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.Scripts.RepoOf(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	out := t.capture(caller, repo, artifact.BeginOptions{View: artifact.View{Whole: maxReport}})
	record, err := t.Scripts.Engine.Run(ctx, &job.Request{
		Tool: t.Name(), Principal: caller.Principal, Session: caller.Session, ID: caller.Trace, Repo: repo, Share: true,
		Builtin: job.ToolEdit, Command: []string{edit.Name}, Stdin: r.Encode(), Usual: job.Limits{Wall: editTime}, QueueWait: t.queueTime(),
	}, out, job.Hooks{})
	switch {
	case ctx.Err() != nil:
		return failed(ctx.Err())
	case err != nil:
		return failed(run.Failed(err))
	}
	return t.reply(caller, record, out.Captured())
}

// capture returns a capture of a job's output for a caller.
func (x *Suite) capture(c tool.Caller, repo string, o artifact.BeginOptions) *artifact.Output {
	o.Repo, o.Principal, o.Secrets = repo, c.Principal, x.Scripts.Secrets
	return run.Begin(x.Scripts.Outputs, o)
}

// reply returns what an edit did, or why it did nothing.
func (t *Edit) reply(c tool.Caller, r *job.Record, out artifact.Captured) (tool.Result, error) {
	switch {
	case r.Status == job.Denied:
		return failed(denied(r))
	case r.Status == job.Success && r.Result.ExitCode == 0:
		return text(t.done(c, r, out))
	case r.Result.ExitCode == 1:
		message := strings.TrimSpace(strings.TrimPrefix(out.Stderr.Whole, "corral-layer: "))
		if out.Stdout.Whole != "" { // other files of the patch were changed
			message = run.Line(t.done(c, r, out)) + message
		}
		return failed(&tool.Error{Code: tool.CodeInvalid, Message: tool.Clean(message)})
	}
	_, end := run.ExitOf(r)
	message := "the edit was " + ended(r)
	if end.Message != "" {
		message += ": " + end.Message
	}
	return failed(&tool.Error{Code: tool.CodeUnavailable, Message: message + "; each file is as it was, or whole with the change: look at it"})
}

// done returns what an edit changed.
func (t *Edit) done(c tool.Caller, r *job.Record, out artifact.Captured) string {
	v := &view{Suite: t.Suite, caller: c}
	parts := append(v.changes(r, r.Request.Repo), run.SessionNotes(r)...)
	return run.WithFooter(tool.Clean(out.Stdout.Whole), parts)
}
