package job

import (
	"fmt"
	"slices"
)

// A ClaimField is one text of a Claim, for code that treats all of them alike.
type ClaimField struct {
	Name  string // field name in the audit log
	Value *string
	Max   int // bytes of it that are kept; the rest is cut off
}

// Fields returns every text of c in a fixed order.
func (c *Claim) Fields() []ClaimField {
	return []ClaimField{
		{"tool", &c.Tool, MaxClaim},
		{"principal", &c.Principal, MaxClaim},
		{"session", &c.Session, MaxClaim},
		{"request", &c.Request, MaxClaim},
		{"repo", &c.Repo, MaxClaim},
		{"runtime", &c.Runtime, MaxClaim},
		{"decision", &c.Decision, MaxClaim},
		{"code", &c.Code, MaxClaim},
		{"args", &c.Args, MaxClaim},
		{"stdin", &c.Stdin, MaxClaim},
		{"artifact", &c.Artifact, MaxClaim},
		{"reason", &c.Reason, 4 * MaxClaim},
		{"network", &c.Network, 4 * MaxClaim},
		{"client", &c.Client, 4 * MaxClaim},
		{"argv", &c.Argv, MaxArgv},
		{"source", &c.Source, MaxSource},
	}
}

// A Recording says what the audit log has of the program that a request runs. The zero value is RecordHash.
type Recording uint8

// The recordings: each has what those before it have.
const (
	RecordHash Recording = iota // hashes alone
	RecordArgv                  // the program and its arguments, without secrets
	RecordCode                  // the code, without secrets
)

// ParseRecording parses hash, argv or code.
func ParseRecording(s string) (Recording, error) {
	n := slices.Index(recordings[:], s)
	if n < 0 {
		return 0, fmt.Errorf("%q is not hash, argv or code", s)
	}
	return Recording(n), nil
}

func (r Recording) String() string { return recordings[r] }

var recordings = [...]string{"hash", "argv", "code"}

// Limit removes from c what is not recorded.
func (c *Claim) Limit(r Recording) {
	if r < RecordArgv {
		c.Argv = ""
	}
	if r < RecordCode {
		c.Source = ""
	}
}
