package ctxtools

import (
	"corral/mcp/tool"
)

// An owner is the session that a job belongs to. Other sessions cannot find out that the job exists.
type owner struct{ principal, session string }

func ownerOf(c tool.Caller) owner { return owner{c.Principal, c.Session} }
