package ctxtools

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"corral/mcp/run"
	"corral/mcp/tool"
)

// Execute is the tool ctx_execute: it runs code and returns what the code writes to standard output. Clients compare the words of its
// replies.
type Execute struct{ *Suite }

// executeArgs are the arguments of ctx_execute. The longest timeout is one day; the policy may allow less.
type executeArgs struct {
	Language   Language `arg:"language,required"`
	Code       string   `arg:"code,required,min=1,max=1MiB,bytes,nonul"`
	Timeout    int      `arg:"timeout,min=1,max=86400000,nonull" also:"timeoutMs" about:"milliseconds; with background: until the reply. Default: the policy's maximum"`
	Background bool     `arg:"background" about:"let it run on"`
	Dir        string   `arg:"cwd,max=4096,nonul" also:"relativeCwd,working_directory"`
	intentArg
	run.HiddenNetworkArg
	repoArg
}

// An intentArg is the argument intent.
type intentArg struct {
	Intent string `arg:"intent,max=1KiB" about:"what you look for in long output"`
}

const executeDescription = `Run code in a sandbox on the repository, without network. Its output enters your context: have the code filter and count. Files written in the repository stay.

%s

Output above 5 KB with an intent, or above 100 KB, is indexed: you get the sections that match the intent, ctx_search finds the rest. With background you get a job id for ctx_job. Go without a package clause gets package main and fmt; JavaScript may have top-level await, import and require.`

// Name implements Tool.
func (t *Execute) Name() string { return "ctx_execute" }

// Definition implements Tool.
func (t *Execute) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Run code, and get its output", Description: fmt.Sprintf(executeDescription, installedLanguages(t.Runtimes)),
		Input: tool.InputSchema(executeArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[anyReply](), TextOnly: true, Destructive: true,
	}
}

// Call implements Tool. The reply is text, with the same facts as structuredContent.
func (t *Execute) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &executeArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.RepoOf(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	dir, err := tool.InRepo(t.Paths[repo], "cwd", a.Dir)
	if err != nil {
		return failed(err)
	}
	network, err := a.Asked()
	if err != nil {
		return failed(err)
	}
	j := Script(caller, t.Name(), repo, a.Language, a.Code)
	j.Request.Dir, j.Request.Network = dir, network
	wait := time.Duration(a.Timeout) * time.Millisecond
	if a.Background {
		return t.background(ctx, j, wait, a.Intent)
	}
	j.Request.Usual.Wall = wait
	ran, err := t.run(ctx, j)
	if err != nil {
		return failed(err)
	}
	return t.answer(ctx, ran, wait, a.Intent)
}
