package server

import (
	"errors"
	"net/http"
	"slices"
	"time"

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

// recheckInterval is how long a stream or a call goes on with a token that is not accepted any more.
const recheckInterval = 500 * time.Millisecond

// errRevoked is the cause of the end of a stream or a call whose token is not accepted any more.
var errRevoked = errors.New("the token was revoked or has expired, or its principal was changed")

// stillAs reports whether r would still be served as c.
func (d *door) stillAs(r *http.Request, c tool.Caller) bool {
	now, ok := d.caller(r)
	return ok && now.Principal == c.Principal && slices.Equal(now.Repos, c.Repos) && slices.Equal(now.Tools, c.Tools)
}
