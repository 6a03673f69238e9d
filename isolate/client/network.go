package client

import (
	"corral/egress/control"
	"corral/internal/text"
	"corral/job"
)

// Maximum lengths of the texts of a denial, in bytes before characters are escaped.
const (
	maxHost  = 253 // of a name in DNS
	maxWhy   = 200
	maxAllow = 300
)

// NetworkUse decodes wire.Result.Reached, which anybody may have written whom a job made corral-egress obey. It returns nil for a
// text that corral-egress does not write: the result of the job does not depend on it.
func NetworkUse(reached string) *job.NetworkUse {
	if reached == "" {
		return nil
	}
	s, err := control.ReadSummary(reached)
	if err != nil {
		return nil
	}
	use := &job.NetworkUse{Connections: s.Connections, Denied: s.Denied, BytesUp: s.BytesUp, BytesDown: s.BytesDown, Lost: s.Lost}
	for _, d := range s.Denials {
		use.Denials = append(use.Denials, job.NetworkDenial{
			Name: text.Line(d.Name, maxHost), Port: int(d.Port), Why: text.Line(d.Why, maxWhy), Allow: text.Line(d.Allow, maxAllow), Count: d.Count,
		})
	}
	return use
}
