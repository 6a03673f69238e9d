package mcp

import (
	"context"
	"encoding/json"
)

// Tools returns the tools of x, each wrapped to count what it returns.
func (x *Ctx) Tools() []Tool {
	tools := []Tool{
		&CtxExecute{x}, &CtxExecuteFile{x}, &CtxBatchExecute{x}, &CtxSearch{x}, &CtxIndex{x}, &CtxJob{x}, &CtxJobs{x}, &CtxStats{x},
		&CtxPurge{x},
	}
	for n, t := range tools {
		tools[n] = &countedTool{t, x}
	}
	return tools
}

// A countedTool counts its calls and the bytes that they return.
type countedTool struct {
	Tool
	x *Ctx
}

// Call implements Tool.
func (t *countedTool) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	r, err := t.Tool.Call(ctx, arguments)
	c := CallerOf(ctx)
	t.x.sums.add(ownerOf(c), 1, 0, int64(len(r.Text)))
	return r, err
}
