package ctxtools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path"
	"strings"

	"corral/internal/redact"
	safe "corral/internal/text"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// Index is the tool ctx_index: it indexes a text or a file of the repository. A job reads the file, inside its jail.
type Index struct{ *Suite }

// maxSourceName is the maximum length of a source's name in bytes.
const maxSourceName = 200

// indexArgs are the arguments of ctx_index.
type indexArgs struct {
	Content string `arg:"content,max=4MiB,bytes" about:"either this or path"`
	Path    string `arg:"path,max=4096,nonul" about:"either this or content"`
	Source  string `arg:"source,max=200,bytes" pattern:"^[^\\n]*$" about:"replaces one of the same name; default: the path, or content"`
	repoArg
}

const indexDescription = `Index a text or a file of the repository for ctx_search, without it entering your context: documentation, notes, data. At most 64 MiB of a file are read.`

// Name implements Tool.
func (t *Index) Name() string { return "ctx_index" }

// Definition implements Tool.
func (t *Index) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Index a text or a file", Description: indexDescription,
		Input:  tool.InputSchema(indexArgs{}, tool.Lenient, nil),
		Output: tool.ReplySchema[indexReply](), TextOnly: true,
		Idempotent: true,
	}
}

// An indexReply is the structuredContent of ctx_index.
type indexReply struct {
	said
	Indexed  *indexedOutput `json:"indexed"`                  // what was indexed, for ctx_search
	Artifact string         `json:"artifactHandle,omitempty"` // of a file as it was read: for runtime_query_output
}

// Call implements Tool.
func (t *Index) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &indexArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	switch {
	case a.Content == "" && a.Path == "":
		return failed(&tool.Error{Code: tool.CodeInvalid, Message: "Error: provide content or path."})
	case a.Content != "" && a.Path != "":
		return failed(&tool.Error{Code: tool.CodeInvalid, Message: "Error: provide content or path, not both."})
	}
	base, err := t.searchable(tool.CallerOf(ctx), a.Repo)
	if err != nil {
		return failed(err)
	}
	reply := &indexReply{}
	added, err := t.add(ctx, a, base, reply)
	if err != nil {
		return failed(err)
	}
	reply.Indexed = indexedOf(added)
	reply.Text = reply.Indexed.words()
	return tool.TextResult(reply, reply.Text, false), nil
}

// add indexes the text or the file.
func (t *Index) add(ctx context.Context, a *indexArgs, b index.Base, reply *indexReply) (index.Added, error) {
	source := index.Source{Label: a.label(), Fixed: true}
	if a.Path == "" {
		text := a.Content
		if !t.Plain {
			text = redact.Text(text, t.Secrets)
		}
		added, err := t.Knowledge.Add(ctx, b, source, strings.NewReader(text))
		if err != nil {
			err = t.refused(ctx, a, err)
		}
		return added, err
	}
	ran, err := t.read(ctx, a.Path, b.Repo)
	if err != nil {
		return index.Added{}, err
	}
	reply.Artifact = ran.Output.Handle
	source.Artifact, source.Stream, source.Title = ran.Output.Handle, artifact.Stdout, path.Base(a.Path)
	added, err := t.indexSource(ctx, b.Repo, b.Principal, source)
	if err != nil {
		return added, t.refused(ctx, a, err)
	}
	added.Truncated = added.Truncated || ran.Output.Stdout.Truncated
	return added, nil
}

// refused converts an error of the index about a's source.
func (t *Index) refused(ctx context.Context, a *indexArgs, err error) error {
	if errors.Is(err, index.ErrTaken) {
		return tool.Invalid("source", "%q is the name of a job's output: choose another", tool.Clip(a.label()))
	}
	return indexError(ctx, err)
}

// label returns the source's name. A path that is too long is cut at its front.
func (a *indexArgs) label() string {
	if s := strings.TrimSpace(a.Source); s != "" {
		return s
	}
	p := singleLine(a.Path)
	return cmp.Or(safe.Tail(p, maxSourceName), "content")
}

// readFile writes a file of the repository to standard output. It resolves symbolic links inside the jail, so that the server
// never follows a link that a job made.
const readFile = `file=$(realpath -e -- "$` + pathVariable + `") || exit 1
here=$(pwd -P)
case $file in
"$here" | "$here"/*) ;;
*) echo "not in the repository" >&2; exit 1 ;;
esac
[ -f "$file" ] || { echo "not a regular file" >&2; exit 1; }
exec cat -- "$file"
`

// read runs a job that reads a file. The job's output is stored as an artifact.
func (t *Index) read(ctx context.Context, name, repo string) (*run.State, error) {
	if !t.inRepo(repo, name) {
		return nil, tool.Invalid("path", "%q is outside the repository", tool.Clip(name))
	}
	j := script(tool.CallerOf(ctx), t.Name(), repo, "shell", readFile)
	j.Request.Env = map[string]*string{pathVariable: &name}
	ran, err := t.run(ctx, j)
	if err != nil {
		return nil, err
	}
	r := ran.Record
	details := map[string]any{"argument": "path"}
	switch why := strings.TrimSpace(tool.UTF8(ran.Output.Stderr.Head)); {
	case r.Status == job.Denied:
		return nil, &tool.Error{Code: tool.CodeDenied, Message: tool.Clean(strings.Join(r.Decision.Reasons, "; "))}
	case r.Status == job.Timeout:
		return nil, &tool.Error{Code: tool.CodeUnavailable, Message: "the file cannot be read: timed out after " + limitMs(r), Details: details}
	case r.Status != job.Success:
		return nil, &tool.Error{Code: tool.CodeNotFound, Message: "the file cannot be read: " + tool.CutText(cmp.Or(why,
			tool.Clean(r.Message), "the job failed"), tool.MaxShort), Details: details}
	case ran.Output.Handle == "":
		return nil, &tool.Error{
			Code: tool.CodeUnavailable, Message: "the file is not indexed: " + cmp.Or(tool.Clean(ran.Output.Reason), errNotKept.Error()),
		}
	}
	return ran, nil
}

// words returns the reply's text.
func (in *indexedOutput) words() string {
	var b strings.Builder
	source := singleLine(in.Source)
	b.WriteString("Indexed " + Counted(in.Sections, "section") + " from \"" + source + "\" into knowledge base (" +
		Counted(int(in.Lines), "line") + ", " + kilobytes(in.Bytes) + ").\n")
	if in.Truncated {
		b.WriteString("Not all of it was indexed.\n")
	}
	if len(in.Terms) > 0 {
		b.WriteString("\nSearchable terms: " + strings.Join(in.Terms, ", ") + "\n")
	}
	b.WriteString("\nUse ctx_search(queries: [...], source: \"" + source + "\") to retrieve full content of any section.")
	return b.String()
}
