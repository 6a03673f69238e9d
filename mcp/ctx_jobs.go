package mcp

import (
	"context"
	"encoding/json"
	"strings"
)

// CtxJobs is the tool ctx_jobs: it lists the session's background jobs, running and ended.
type CtxJobs struct{ *Ctx }

// A ctxJobsReply is the structuredContent of ctx_jobs.
type ctxJobsReply struct {
	Jobs []*ctxJobReply `json:"jobs"`
	Text string         `json:"text" about:"the same as the text block"`
}

// Name implements Tool.
func (t *CtxJobs) Name() string { return "ctx_jobs" }

// Definition implements Tool.
func (t *CtxJobs) Definition() Definition {
	return Definition{
		Name: t.Name(), Title: "List jobs in the background",
		Description: "List the jobs that ctx_execute left in the background in this session, the oldest first: those that run, and for an hour those that have ended.",
		Input:       inputSchema(struct{}{}, Lenient, nil), ReadOnly: true, Idempotent: true,
		Output: replySchema[ctxJobsReply](),
	}
}

// Call implements Tool.
func (t *CtxJobs) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	if err := decodeArguments(arguments, &struct{}{}, Lenient); err != nil {
		return ctxFailed(err)
	}
	t.begin()
	reply := &ctxJobsReply{Jobs: []*ctxJobReply{}}
	var lines []string
	for _, b := range t.jobs.of(ownerOf(CallerOf(ctx))) {
		one := b.status()
		reply.Jobs = append(reply.Jobs, one)
		lines = append(lines, one.words())
	}
	if lines == nil {
		lines = []string{"No jobs in the background."}
	}
	reply.Text = strings.Join(lines, "\n")
	return texts(reply, reply.Text, false), nil
}
