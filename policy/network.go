package policy

import (
	"corral/job"
	"corral/policy/ask"
)

// Network has maximums of what jobs may reach, in the form of job.Spec.Network: "" is all that the operator's rules allow for the
// repository. A request has what all maximums have in common.
type Network struct {
	Max         string            // of all requests
	ByPrincipal map[string]string // by principal
	ByTool      map[string]string // by the tool's first name
}

// ofSession returns the maximum of the jobs of the request's session. The tools of a principal share sessions.
func (n *Network) ofSession(r *job.Request) string {
	return ask.Common(n.Max, n.ByPrincipal[r.Principal])
}

// of returns the maximum of a request.
func (n *Network) of(r *job.Request) string { return ask.Common(n.ofSession(r), n.ByTool[r.Tool]) }
