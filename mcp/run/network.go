package run

import (
	"strings"

	"corral/internal/text"
	"corral/job"
	"corral/mcp/tool"
	"corral/policy/ask"
)

// A NetworkArg is the argument network of tools that run jobs. Asked must be called: it checks the words.
type NetworkArg struct {
	Network []string `arg:"network,items=64,nonul,single" about:"npm, HOST[:PORT], none"`
}

// A HiddenNetworkArg is the same argument of tools that do not publish it.
type HiddenNetworkArg struct {
	Network []string `arg:"network,hidden,items=64,max=4096,nonul,single"`
}

// Asked returns what a call asks for of the network, in the form of job.Request.Network. The error is an *Error.
func (a *NetworkArg) Asked() (string, error) {
	asked, err := ask.Parse(a.Network...)
	if err != nil {
		reason, hint, _ := strings.Cut(err.Error(), "\nhint: ")
		e := tool.Invalid("network", "%s", text.Line(reason, tool.MaxShort))
		if hint != "" {
			e.Details["hint"] = text.Line(hint, tool.MaxShort)
		}
		return "", e
	}
	return asked, nil
}

// Asked returns what NetworkArg.Asked does.
func (a *HiddenNetworkArg) Asked() (string, error) { return (&NetworkArg{a.Network}).Asked() }

// networkOf returns what a job reached, for clients.
func networkOf(r *job.Record) *job.NetworkUse {
	if r.Result.Network == nil {
		return nil
	}
	use := *r.Result.Network
	use.Denials = nil
	for _, d := range r.Result.Network.Denials {
		d.Name, d.Why, d.Allow = tool.Clean(d.Name), tool.Clean(d.Why), tool.Clean(d.Allow)
		use.Denials = append(use.Denials, d)
	}
	return &use
}

// maxDenied is the maximum number of denied hosts that a text names.
const maxDenied = 5

// Denied returns what a text for an agent says of hosts that a job could not reach: one line each, and who can allow them. nil if it
// was denied none.
func Denied(r *job.Record) []string {
	if r.Result.Network == nil {
		return nil
	}
	lines, hint := r.Result.Network.Report(maxDenied)
	for n, line := range lines {
		lines[n] = text.Escape(line)
	}
	if hint != "" {
		lines = append(lines, hint)
	}
	return lines
}
