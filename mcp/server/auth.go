package server

import (
	"net/http"

	"corral/internal/gate"
	"corral/mcp/tool"
)

// A door is a gate that identifies callers by their bearer tokens.
type door struct {
	gate.Gate
	authenticate func(token string) (tool.Caller, bool)
}

// caller returns the caller whose token r has. A request with two tokens has no caller.
func (d *door) caller(r *http.Request) (tool.Caller, bool) {
	token, ok := gate.Bearer(r)
	if !ok {
		return tool.Caller{}, false
	}
	c, ok := d.authenticate(token)
	return c, ok && c.Principal != ""
}
