package ctxtools

import (
	"context"
	"encoding/json"
	"path"
	"strings"
	"time"

	"corral/mcp/run"
	"corral/mcp/tool"
)

// ExecuteFile is the tool ctx_execute_file: it runs code with the content of a file of the repository in a variable. The
// job reads the file, inside its jail.
type ExecuteFile struct{ *Suite }

// fileArgs are the arguments of ctx_execute_file.
type fileArgs struct {
	Path     string   `arg:"path,required,min=1,max=4096,nonul" also:"file,file_path" about:"relative to the repository, or absolute in it"`
	Language Language `arg:"language,required"`
	Code     string   `arg:"code,required,min=1,max=1MiB,bytes,nonul"`
	Timeout  int      `arg:"timeout,min=1,max=86400000,nonull" also:"timeoutMs" about:"milliseconds; default: the policy's maximum"`
	intentArg
	run.HiddenNetworkArg
	repoArg
}

const fileDescription = `Like ctx_execute, for code that reads one file of the repository, which itself does not enter your context. The code finds the text in FILE_CONTENT and the path in file_path (Elixir: file_content; PHP and Perl: $FILE_CONTENT, $file_path). Go and Rust code may be the body of main.`

// Name implements Tool.
func (t *ExecuteFile) Name() string { return "ctx_execute_file" }

// Definition implements Tool.
func (t *ExecuteFile) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Run code on a file", Description: fileDescription,
		Input: tool.InputSchema(fileArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[anyReply](), TextOnly: true, Destructive: true,
	}
}

// Call implements Tool.
func (t *ExecuteFile) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &fileArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.RepoOf(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	// Symbolic links need no check: the job reads the file, and it can read nothing outside its jail.
	if !t.inRepo(repo, a.Path) {
		return failed(tool.Invalid("path", "%q is outside the repository", tool.Clip(a.Path)))
	}
	network, err := a.Asked()
	if err != nil {
		return failed(err)
	}
	l, name := languageOf(a.Language), plainPath(a.Path)
	wait := time.Duration(a.Timeout) * time.Millisecond
	j := script(caller, t.Name(), repo, l.Runtime, l.WithFile(a.Code))
	j.Label, j.Request.Env, j.Request.Usual.Wall, j.Request.Network = fileLabel(a.Path), map[string]*string{pathVariable: &name}, wait, network
	ran, err := t.run(ctx, j)
	if err != nil {
		return failed(err)
	}
	return t.answer(ctx, ran, wait, a.Intent)
}

// inRepo reports whether p is lexically inside the repository with this id.
func (x *Suite) inRepo(id, p string) bool {
	clean := path.Clean(p)
	if path.IsAbs(clean) {
		root := x.Paths[id]
		return root != "" && (clean == root || strings.HasPrefix(clean, strings.TrimSuffix(root, "/")+"/"))
	}
	return clean != ".." && !strings.HasPrefix(clean, "../")
}

// plainPath returns p in a form without a special meaning in any language: PHP has stream names with a colon, R has stdin and
// the clipboard, cat(1) reads standard input for "-", and "~" can mean a home directory.
func plainPath(p string) string {
	special := strings.Contains(p, ":") || strings.ContainsAny(p[:1], "-~|")
	for _, name := range []string{"stdin", "clipboard", "X11_"} {
		special = special || strings.HasPrefix(p, name)
	}
	if special && !path.IsAbs(p) {
		return "./" + p
	}
	return p
}

// maxFileLabel is the maximum number of bytes of a path in the name of a source.
const maxFileLabel = 150

// fileLabel returns the name under which output about a file is indexed. A long path is cut at its front.
func fileLabel(p string) string {
	p = strings.Join(strings.Fields(tool.Clean(p)), " ")
	if len(p) > maxFileLabel {
		p = "…" + strings.ToValidUTF8(p[len(p)-maxFileLabel:], "")
	}
	return "file:" + p
}
