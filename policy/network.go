package policy

import (
	"maps"
	"sync/atomic"

	"corral/job"
	"corral/policy/ask"
)

// Network has maximums of what jobs may reach, in the form of job.Spec.Network: "" is all that the operator's rules allow for the
// repository. A request has what all maximums have in common.
type Network struct {
	Max         string            // of all requests
	ByPrincipal *Maximums         // nil has none
	ByTool      map[string]string // by the tool's first name
}

// Maximums are maximums of what principals may reach. Unlike everything else in Rules they can be replaced while requests are decided:
// principals come and change while a server runs. A nil *Maximums and the zero value have none.
type Maximums struct {
	by atomic.Pointer[map[string]string] // by principal
}

// Set replaces all maximums, by principal.
func (m *Maximums) Set(by map[string]string) {
	by = maps.Clone(by)
	m.by.Store(&by)
}

// Of returns the maximum of a principal, "" if it has none.
func (m *Maximums) Of(principal string) string {
	if m == nil {
		return ""
	}
	if by := m.by.Load(); by != nil {
		return (*by)[principal]
	}
	return ""
}

// ofSession returns the maximum of the jobs of the request's session. The tools of a principal share sessions.
func (n *Network) ofSession(r *job.Request) string {
	return ask.Common(n.Max, n.ByPrincipal.Of(r.Principal))
}

// of returns the maximum of a request.
func (n *Network) of(r *job.Request) string { return ask.Common(n.ofSession(r), n.ByTool[r.Tool]) }
