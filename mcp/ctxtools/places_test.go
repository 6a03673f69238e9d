package ctxtools

import (
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// TestJobErrorsQuote: errors quote what a client wrote, on one line and cut.
func TestJobErrorsQuote(t *testing.T) {
	said := func(err error) string { return tool.AsError(err).Message }
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "no background job", Lines: 1, Most: 6*tool.MaxShown + 200, Shows: func(s string) string {
			_, err := run.NewProcesses().Find(run.Owner{}, s)
			return said(err)
		}},
	})
}
