package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"corral/job"
	"corral/store/artifact"
	"corral/store/index"
)

// CtxBatchExecute is the tool ctx_batch_execute: it runs shell commands, indexes all their output, and answers queries about
// it. Its replies are worded as in context-mode.
type CtxBatchExecute struct{ *Ctx }

const (
	// maxCommands is the maximum number of commands in a call, and maxCommandsAtOnce how many of them run at once.
	maxCommands       = 100
	maxCommandsAtOnce = 8
	// maxCtxLabel is the maximum length of a source's name in bytes.
	maxCtxLabel = 200
)

// A batchCommand is one command of a call.
type batchCommand struct{ label, command string }

// batchArgs are the arguments of ctx_batch_execute.
type batchArgs struct {
	repo, dir, scope string
	commands         []batchCommand
	given            bool // "commands" was given
	queries          []string
	timeout          int // ms, of each command; 0 is not given
	concurrency      int
}

const (
	scopeBatch  = "batch"
	scopeGlobal = "global"
)

func newBatchArgs() *batchArgs { return &batchArgs{concurrency: 1, scope: scopeBatch} }

func (a *batchArgs) fields() []field {
	return []field{
		{name: "commands", into: &a.given, required: true, items: maxCommands, each: a.command, about: "what to run, each with a label that its output is found by"},
		queriesField(&a.queries),
		{
			name: "timeout", into: &a.timeout, min: 1, max: maxCtxTimeout, coerce: true, bare: true,
			about: "time limit of each command, in milliseconds. Default: what the policy allows",
		},
		{name: "concurrency", into: &a.concurrency, min: 1, max: maxCommandsAtOnce, coerce: true, about: "how many run at once"},
		{name: "cwd", into: &a.dir, max: 4096, noNUL: true, about: "working directory, relative to the repository"},
		{
			name: "query_scope", into: &a.scope, enum: []string{scopeBatch, scopeGlobal},
			about: "batch: queries are about this output; global: about all that is indexed",
		},
		repoField(&a.repo),
	}
}

// command appends a command and returns its fields.
func (a *batchArgs) command() []field {
	a.commands = append(a.commands, batchCommand{})
	c := &a.commands[len(a.commands)-1]
	return []field{
		{name: "label", into: &c.label, required: true, min: 1, max: maxCtxLabel, bytes: true, pattern: oneLine, expr: "^[^\\n]+$", about: "a name for its output"},
		{name: "command", into: &c.command, required: true, min: 1, max: 1 << 20, bytes: true, noNUL: true, about: "shell command; it is run as it is written"},
	}
}

const batchDescription = `Run several shell commands in the sandbox, index all of their output, and answer queries about it, in one call. The output does not enter your context: only what matches the queries does, and later what ctx_search finds.

Each command is a script of its own for bash: variables and the working directory do not last from one to the next, files in the repository do. Without concurrency they run one after the other; one that fails does not stop the others. timeout is of each command, not of all together. No network.

The reply has a line for each command (exit code, lines, size), then each query with its best sections, as ctx_search has them. Put all your questions in: what is not asked for can be found with ctx_search later, by source: the label.`

// Name implements Tool.
func (t *CtxBatchExecute) Name() string { return "ctx_batch_execute" }

// Definition implements Tool.
func (t *CtxBatchExecute) Definition() Definition {
	return Definition{
		Name: t.Name(), Title: "Run commands, and search their output", Description: batchDescription,
		Input: openSchema(newBatchArgs().fields()),
		Output: replySchema(properties{
			{"text", text("the same as the text block")},
			{"commands", &schema{Type: "array", Description: "in the order of the call", Items: &schema{Type: "object", Properties: properties{
				{"label", text("")},
				{"status", &schema{Type: "string", Enum: []string{"success", "failure", "timeout", "cancelled", "denied"}}},
				{"exitCode", &schema{Type: nullable("integer")}},
				{"signal", text("that ended it")},
				{"durationMs", integer("")},
				{"message", text("why it was not run, or what went wrong")},
				{"lines", integer("of both streams")},
				{"bytes", integer("of both streams")},
				{"indexed", &schema{Type: "array", Items: indexedSchema()}},
				{"indexReason", text("why its output is not indexed")},
				{"output", text("what it wrote, where it is not indexed")},
				{"artifactHandle", text("for runtime_query_output")},
			}}}},
			{"results", answersSchema()},
			{"message", text("of an error: what is wrong")},
		}),
		Destructive: true,
	}
}

// Call implements Tool.
func (t *CtxBatchExecute) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	a := newBatchArgs()
	if err := decodeLenient(arguments, a.fields()); err != nil {
		return ctxFailed(err)
	}
	if len(a.commands) == 0 {
		return ctxFailed(invalid("commands", "must have at least one entry"))
	}
	caller := CallerOf(ctx)
	repo, err := t.repo(caller, a.repo)
	if err != nil {
		return ctxFailed(err)
	}
	reply := &batchReply{Commands: t.runAll(ctx, a, caller, repo)}
	if ctx.Err() != nil {
		return ToolResult{}, ctx.Err()
	}
	t.answerAll(ctx, reply, nonBlank(unpackList(arguments, a.queries)), a.scope, t.base(caller, repo))
	if ctx.Err() != nil {
		return ToolResult{}, ctx.Err()
	}
	reply.Text = reply.words()
	return texts(reply, reply.Text, !reply.ran()), nil
}

// answerAll answers the queries and, if it cannot answer all of them from all the output, sets the reply's reason.
func (t *CtxBatchExecute) answerAll(ctx context.Context, reply *batchReply, queries []string, scope string, b index.Base) {
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
		reply.Reason = "the queries are not answered: " + fail(err).Message
	case reply.unindexed():
		reply.Reason = "not all of the output is indexed: the queries are answered from the rest"
	}
}

// batchLimit is the maximum number of sections returned for each query of a batch.
const batchLimit = 5

// unanswered returns answers without hits, for a batch with nothing to search.
func unanswered(queries []string) []*queryAnswer {
	var answers []*queryAnswer
	for _, q := range queries {
		answers = append(answers, newQueryAnswer(q, &index.Found{}))
	}
	return answers
}

// runAll runs the commands, a.concurrency at once. The replies are in the order of the call.
func (t *CtxBatchExecute) runAll(ctx context.Context, a *batchArgs, c Caller, repo string) []*commandReply {
	b := &batch{all: make([]*commandReply, len(a.commands))}
	for n := range a.commands {
		b.todo = append(b.todo, n)
	}
	b.workers = min(a.concurrency, len(b.todo))
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
func (t *CtxBatchExecute) runOne(ctx context.Context, a *batchArgs, n int, c Caller, repo string) *commandReply {
	command := a.commands[n]
	r := &commandReply{Label: clean(command.label)}
	ran, err := t.run(ctx, &ctxRun{
		tool: t.Name(), caller: c, repo: repo, runtime: "shell", code: command.command, dir: a.dir, label: command.label,
		timeout: time.Duration(a.timeout) * time.Millisecond,
	})
	if err != nil {
		r.Status, r.Message = job.Failure, clean(fail(err).Message)
		return r
	}
	r.fill(ran)
	if !r.executed {
		return r
	}
	for _, stream := range []string{artifact.Stdout, artifact.Stderr} {
		if size(ran.capture(stream)) == 0 {
			continue
		}
		added, err := t.indexStream(ctx, ran, stream)
		if err != nil {
			r.Reason = clean(fmt.Sprintf("%s: %v", stream, err))
			if errors.Is(err, errStillIndexing) { // it can be found later
				continue
			}
			r.Output += middleOut(ran.capture(stream), maxUnindexed/len(a.commands))
			continue
		}
		r.Indexed = append(r.Indexed, indexedOf(added))
	}
	return r
}

// maxUnindexed is the maximum number of bytes that a reply shows of each stream whose output cannot be indexed,
// divided among the commands.
const maxUnindexed = 64 << 10
