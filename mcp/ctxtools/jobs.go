package ctxtools

import (
	"context"
	"encoding/json"
	"strings"

	"corral/mcp/tool"
)

// Jobs is the tool ctx_jobs: it lists the session's background jobs, running and ended.
type Jobs struct{ *Suite }

// A jobsReply is the structuredContent of ctx_jobs.
type jobsReply struct {
	Jobs []*jobReply `json:"jobs"`
	said
}

// Name implements Tool.
func (t *Jobs) Name() string { return "ctx_jobs" }

// Definition implements Tool.
func (t *Jobs) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "List jobs in the background",
		Description: "List the background jobs of this session, the oldest first; ended ones for an hour.",
		Input:       tool.InputSchema(struct{}{}, tool.Lenient, nil), ReadOnly: true, Idempotent: true,
		Output: tool.ReplySchema[jobsReply](), TextOnly: true,
	}
}

// Call implements Tool.
func (t *Jobs) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	if err := tool.Decode(arguments, &struct{}{}, tool.Lenient); err != nil {
		return failed(err)
	}
	reply := &jobsReply{Jobs: []*jobReply{}}
	var lines []string
	for _, p := range t.Processes(tool.CallerOf(ctx)) {
		one := t.statusOf(ctx, p)
		reply.Jobs = append(reply.Jobs, one)
		lines = append(lines, one.words())
	}
	if lines == nil {
		lines = []string{"No jobs in the background."}
	}
	reply.Text = strings.Join(lines, "\n")
	return tool.TextResult(reply, reply.Text, false), nil
}
