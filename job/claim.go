package job

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
	}
}
