package ctxtools

import (
	"context"
	"encoding/json"

	"corral/mcp/tool"
)

// Tools returns the tools of x, each wrapped to count what it returns.
func (x *Suite) Tools() []tool.Tool {
	tools := []tool.Tool{
		&Execute{x}, &ExecuteFile{x}, &BatchExecute{x}, &Search{x}, &Index{x}, &Job{x}, &Jobs{x}, &Stats{x},
		&Purge{x},
	}
	for n, t := range tools {
		tools[n] = &countedTool{t, x}
	}
	return tools
}

// A countedTool counts its calls and the bytes that they return.
type countedTool struct {
	tool.Tool
	x *Suite
}

// Call implements Tool.
func (t *countedTool) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	r, err := t.Tool.Call(ctx, arguments)
	c := tool.CallerOf(ctx)
	t.x.root().sums.add(ownerOf(c), 1, 0, int64(len(r.Text)))
	return r, err
}
