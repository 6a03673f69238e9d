package mcp

import (
	"net/http"

	"corral/internal/gate"
)

// A door is a gate that knows callers by their tokens.
type door struct {
	gate.Gate
	authenticate func(token string) (Caller, bool)
}

// caller returns who sent r, by its one bearer token.
func (d *door) caller(r *http.Request) (Caller, bool) {
	token, ok := gate.Bearer(r)
	if !ok {
		return Caller{}, false
	}
	c, ok := d.authenticate(token)
	return c, ok && c.Principal != ""
}
