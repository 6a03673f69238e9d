package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// BatchExecute is the tool ctx_batch_execute: it runs shell commands, indexes all their output, and answers queries about
// it. Clients compare the words of its replies.
type BatchExecute struct{ *Suite }

// batchArgs are the arguments of ctx_batch_execute.
type batchArgs struct {
	Commands []batchCommand `arg:"commands,required,items=100"`
	queriesArg
	Timeout     int    `arg:"timeout,min=1,max=86400000,nonull" also:"timeoutMs" about:"milliseconds, for each command"`
	Concurrency int    `arg:"concurrency,min=1,max=8" default:"1"`
	Dir         string `arg:"cwd,max=4096,nonul" also:"relativeCwd,working_directory"`
	Scope       string `arg:"query_scope" enum:"batch,global" default:"batch" about:"global: search all that is indexed"`
	run.HiddenNetworkArg
	repoArg
}

// A batchCommand is one command of a call.
type batchCommand struct {
	Label   string `arg:"label,required,min=1,max=200,bytes" pattern:"^[^\\n]+$" about:"names its output"`
	Command string `arg:"command,required,min=1,max=1MiB,bytes,nonul"`
}

// Values of batchArgs.Scope.
const (
	scopeBatch  = "batch"
	scopeGlobal = "global"
)

const batchDescription = `Run several shell commands in the sandbox, index their output and answer queries about it in one call. Only what matches enters your context; ctx_search finds the rest by source: the label.

Each command is a bash script of its own; one that fails does not stop the others. The reply has a line for each (exit code, lines, size), then the best sections for each query.`

// Name implements Tool.
func (t *BatchExecute) Name() string { return "ctx_batch_execute" }

// Definition implements Tool.
func (t *BatchExecute) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Run commands, and search their output", Description: batchDescription,
		Input: tool.InputSchema(batchArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[batchReply](), TextOnly: true,
		Destructive: true,
	}
}

// Call implements Tool.
func (t *BatchExecute) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &batchArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	if len(a.Commands) == 0 {
		return failed(tool.Invalid("commands", "must have at least one entry"))
	}
	caller := tool.CallerOf(ctx)
	repo, err := t.RepoOf(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	if a.Dir, err = tool.InRepo(t.Paths[repo], "cwd", a.Dir); err != nil {
		return failed(err)
	}
	asked, err := a.Asked()
	if err != nil {
		return failed(err)
	}
	a.Network = []string{asked}
	reply := &batchReply{Commands: t.runAll(ctx, a, caller, repo)}
	if ctx.Err() != nil {
		return tool.Result{}, ctx.Err()
	}
	t.answerAll(ctx, reply, nonBlank(unpackList(arguments, a.Queries)), a.Scope, t.base(caller, repo))
	if ctx.Err() != nil {
		return tool.Result{}, ctx.Err()
	}
	reply.Text = reply.words()
	return tool.TextResult(reply, reply.Text, !reply.ran()), nil
}

// answerAll answers the queries and, if it cannot answer all of them from all the output, sets the reply's reason.
func (t *BatchExecute) answerAll(ctx context.Context, reply *batchReply, queries []string, scope string, b index.Base) {
	q := index.Query{Limit: batchLimit}
	if scope == scopeBatch {
		q.Artifacts = reply.artifacts()
	}
	var err error
	switch {
	case len(queries) == 0:
		return
	case t.Knowledge == nil:
		err = errNoKnowledge
	case scope == scopeBatch && len(q.Artifacts) == 0:
		reply.Results = unanswered(queries)
	default:
		reply.Results, _, err = t.searchAll(ctx, b, queries, q)
	}
	switch {
	case err != nil:
		reply.Reason = "the queries are not answered: " + tool.AsError(err).Message
	case reply.unindexed():
		reply.Reason = "not all of the output is indexed: the queries are answered from the rest"
	}
}

// batchLimit is the maximum number of sections returned for each query of a batch.
const batchLimit = 5

// unanswered returns answers without hits, for a batch with nothing to search.
func unanswered(queries []string) []*answer {
	var answers []*answer
	for _, q := range queries {
		answers = append(answers, newAnswer(q, &index.Found{}))
	}
	return answers
}

// runAll runs the commands, a.Concurrency at once. The replies are in the order of the call.
func (t *BatchExecute) runAll(ctx context.Context, a *batchArgs, c tool.Caller, repo string) []*commandReply {
	b := &batch{all: make([]*commandReply, len(a.Commands))}
	for n := range a.Commands {
		b.todo = append(b.todo, n)
	}
	b.workers = min(a.Concurrency, len(b.todo))
	var work sync.WaitGroup
	for range b.workers {
		work.Go(func() {
			for n, ok := b.next(); ok && ctx.Err() == nil; n, ok = b.next() {
				r := t.runOne(ctx, a, n, c, repo)
				if !b.finish(n, r) {
					return
				}
			}
		})
	}
	work.Wait()
	return b.all
}

// A batch is the queue of one call's commands.
type batch struct {
	mu      sync.Mutex
	todo    []int           // guarded by mu
	workers int             // guarded by mu: workers still running
	all     []*commandReply // guarded by mu
}

func (b *batch) next() (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.todo) == 0 {
		return 0, false
	}
	n := b.todo[0]
	b.todo = b.todo[1:]
	return n, true
}

// finish stores the reply to command n and reports whether its worker continues. A command denied because of the limit on
// concurrent jobs is requeued for the other workers, unless this worker is the last one.
func (b *batch) finish(n int, r *commandReply) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.overLimit && b.workers > 1 {
		b.workers--
		b.todo = append([]int{n}, b.todo...)
		return false
	}
	b.all[n] = r
	return true
}

// runOne runs a command and indexes its output.
func (t *BatchExecute) runOne(ctx context.Context, a *batchArgs, n int, c tool.Caller, repo string) *commandReply {
	command := a.Commands[n]
	r := &commandReply{Label: tool.Clean(command.Label)}
	j := script(c, t.Name(), repo, "shell", command.Command)
	j.Label, j.Request.Dir, j.Request.Network = command.Label, a.Dir, a.Network[0]
	j.Request.Usual.Wall = time.Duration(a.Timeout) * time.Millisecond
	ran, err := t.run(ctx, j)
	if err != nil {
		r.Status, r.Message = job.Failure, tool.Clean(tool.AsError(err).Message)
		return r
	}
	r.fill(ran)
	if !r.executed {
		return r
	}
	for _, stream := range []string{artifact.Stdout, artifact.Stderr} {
		if ran.Stream(stream).Size() == 0 {
			continue
		}
		added, err := t.indexStream(ctx, ran, stream)
		if err != nil {
			r.Reason = tool.Clean(fmt.Sprintf("%s: %v", stream, err))
			if errors.Is(err, errStillIndexing) { // it can be found later
				continue
			}
			r.Output += middleOut(ran.Stream(stream), maxUnindexed/len(a.Commands))
			continue
		}
		r.Indexed = append(r.Indexed, indexedOf(added))
	}
	return r
}

// maxUnindexed is the maximum number of bytes that a reply shows of each stream whose output cannot be indexed,
// divided among the commands.
const maxUnindexed = 64 << 10
