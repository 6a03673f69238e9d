package job

import (
	"fmt"
	"strconv"
)

// NoNetwork is the Network of a job that reaches no host.
const NoNetwork = "none"

// A NetworkUse says what a job used its network access for. The numbers and texts are from a program that reads what jobs and
// servers send, and jobs choose the names: they are for people and agents, and nothing may be decided by them. Texts have one line
// each, without characters that a terminal does not show as themselves, and no bytes beyond a few hundred.
type NetworkUse struct {
	Connections int64           `json:"connections"`       // that were allowed
	Denied      int64           `json:"denied"`            // connections and names
	BytesUp     int64           `json:"bytesUp"`           // from the job
	BytesDown   int64           `json:"bytesDown"`         // to the job
	Denials     []NetworkDenial `json:"denials,omitempty"` // distinct, the first ones
	Lost        bool            `json:"lost,omitempty"`    // corral-egress ended while the job ran: what it reached before is not counted
}

// A NetworkDenial is a host that a job could not reach.
type NetworkDenial struct {
	Name  string `json:"name"`
	Port  int    `json:"port,omitempty"` // 0: the name was looked up
	Why   string `json:"why"`
	Allow string `json:"allow,omitempty"` // the rule that would allow it, for network.allow of the operator's configuration
	Count int64  `json:"count"`
}

// Host returns the name and the port, if there is one.
func (d *NetworkDenial) Host() string {
	if d.Port == 0 {
		return d.Name
	}
	return d.Name + ":" + strconv.Itoa(d.Port)
}

// Reason returns why the host was denied and, if there is one, the rule that would allow it.
func (d *NetworkDenial) Reason() string {
	if d.Allow == "" {
		return d.Why
	}
	return d.Why + "; to allow it: " + d.Allow
}

// Unlisted returns how many of the denied connections and names are not in Denials.
func (u *NetworkUse) Unlisted() int64 {
	left := u.Denied
	for _, d := range u.Denials {
		left -= min(max(d.Count, 0), left)
	}
	return left
}

// Report returns a line for each of the first most denied hosts, one that counts others, and a hint on whom to ask, "" if no rule
// would allow one of them.
func (u *NetworkUse) Report(most int) (lines []string, hint string) {
	shown := *u
	shown.Denials = u.Denials[:min(len(u.Denials), most)]
	if u.Lost {
		lines = append(lines, "network: corral-egress ended while the job ran: what it reached before that is not known")
	}
	for _, d := range shown.Denials {
		times := ""
		if d.Count > 1 {
			times = fmt.Sprintf(" %d times", d.Count)
		}
		lines = append(lines, fmt.Sprintf("network: %s denied%s: %s", d.Host(), times, d.Reason()))
		if d.Allow != "" {
			hint = networkHint
		}
	}
	switch n := shown.Unlisted(); {
	case n > 0 && len(shown.Denials) > 0:
		lines = append(lines, fmt.Sprintf("network: and %d more denied", n))
	case n > 0:
		lines = append(lines, fmt.Sprintf("network: %d connections or names denied", n))
	}
	return lines, hint
}

// networkHint says whom to ask for rules.
const networkHint = "ask the operator to add such a rule to network.allow of the repository in corral's configuration"
