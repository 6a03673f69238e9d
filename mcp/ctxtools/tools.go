package ctxtools

import (
	"context"
	"encoding/json"

	"corral/mcp/run"
	"corral/mcp/tool"
)

// Tools returns the tools of x, each wrapped to count what it returns.
func (x *Suite) Tools() []tool.Tool {
	var tools []tool.Tool
	for _, one := range []countedTool{
		{&Execute{x}, x, executeArgs{}},
		{&ExecuteFile{x}, x, fileArgs{}},
		{&BatchExecute{x}, x, batchArgs{}},
		{&Search{x}, x, searchArgs{}},
		{&Index{x}, x, indexArgs{}},
		{&Job{x}, x, jobArgs{}},
		{&Jobs{x}, x, struct{}{}},
		{&Stats{x}, x, repoArg{}},
		{&Purge{x}, x, purgeArgs{}},
	} {
		tools = append(tools, &one)
	}
	return tools
}

// A countedTool counts its calls and the bytes that they return, and names arguments that it ignored.
type countedTool struct {
	tool.Tool
	x    *Suite
	args any // a value of the struct of its arguments
}

// Call implements Tool.
func (t *countedTool) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	r, err := t.Tool.Call(ctx, arguments)
	if err == nil {
		r = withIgnored(r, tool.Unknown(arguments, t.args))
	}
	c := tool.CallerOf(ctx)
	t.x.sums.add(run.OwnerOf(c), 1, 0, int64(len(r.Text)))
	return r, err
}
