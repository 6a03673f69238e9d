package ctxtools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"corral/mcp/ctxtools/language"
	"corral/mcp/tool"
)

// Execute is the tool ctx_execute: it runs code and returns what the code writes to standard output. Its replies are
// worded as in context-mode.
type Execute struct{ *Suite }

// executeArgs are the arguments of ctx_execute. The longest timeout is one day; the policy may allow less.
type executeArgs struct {
	Language   language.Name `arg:"language,required" about:"what the code is written in"`
	Code       string        `arg:"code,required,min=1,max=1MiB,bytes,nonul" about:"source text to run; at most 1 MiB in UTF-8. What it writes to standard output is the reply"`
	Timeout    int           `arg:"timeout,min=1,max=86400000,nonull" about:"time limit in milliseconds; with background, how long to wait before replying. Default: what the policy allows"`
	Background bool          `arg:"background" about:"reply at once, or after timeout, and let it run on: follow it with ctx_job"`
	Dir        string        `arg:"cwd,max=4096,nonul" about:"working directory, relative to the repository"`
	intentArg
	repoArg
}

// An intentArg is the argument intent.
type intentArg struct {
	Intent string `arg:"intent,max=1KiB" about:"what you look for in the output: long output is indexed, and the reply has the sections that match"`
}

const executeDescription = `Run code in a sandbox on the repository. Only what it writes to standard output enters your context, so have the code filter, count and summarize, and print the answer. No network; memory, processes and time are bounded. Files it writes in the repository stay.

%s

Output of more than 5 KB with an intent, or of more than 100 KB, is indexed instead of returned: the reply lists the sections that match the intent, and ctx_search finds everything in it. Shorter output is returned as it is.

A failure has the exit code, stdout and stderr. With background: true it goes on after the reply, which has a job id: ctx_job follows, reads and signals it; it ends with your session. Go without a package clause gets package main and fmt; PHP needs no <?php; JavaScript may have top-level await, import and require.`

// Name implements Tool.
func (t *Execute) Name() string { return "ctx_execute" }

// Definition implements Tool.
func (t *Execute) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Run code, and get its output", Description: fmt.Sprintf(executeDescription, language.Installed(t.Runtimes)),
		Input: tool.InputSchema(executeArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[anyReply](), Destructive: true,
	}
}

// Call implements Tool. The reply is text, with the same facts as structuredContent.
func (t *Execute) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &executeArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.repo(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	l := language.Of(a.Language)
	run := &scriptRun{
		tool: t.Name(), caller: caller, repo: repo, runtime: l.Runtime, code: l.Source(a.Code), dir: a.Dir,
		label: "execute:" + l.Name,
	}
	wait := time.Duration(a.Timeout) * time.Millisecond
	if a.Background {
		return t.background(ctx, run, wait, a.Intent)
	}
	run.timeout = wait
	ran, err := t.run(ctx, run)
	if err != nil {
		return failed(err)
	}
	return t.answer(ctx, ran, a.Intent)
}
