package wire

import "corral/job"

// claim is what the front-end claims about a request. Texts longer than the audit log keeps are cut here already.
func (c *coder) claim(claim *job.Claim) {
	for _, f := range claim.Fields() {
		c.text(f.Max, f.Value)
	}
}

// Denied requests an audit record of a request that the front-end denied. The reply is an Answer.
type Denied struct{ Claim job.Claim }

func (*Denied) op() Op { return OpDenied }

func (m *Denied) fields(c *coder) {
	c.claim(&m.Claim)
}

// State requests the directory in which a user's front-ends keep their state. The reply is an Answer, with the
// directory's descriptor if there is no error.
type State struct{ UID uint32 }

func (*State) op() Op { return OpState }

func (m *State) fields(c *coder) {
	c.u32(&m.UID)
}

// Answer is the reply to a request without a result of its own.
type Answer struct{ Error string } // "" is success; maximum MaxText bytes

func (*Answer) op() Op { return OpAnswer }

func (m *Answer) fields(c *coder) {
	c.text(MaxText, &m.Error)
}

// MaxReason is the maximum length of a Denial's Reason and Repo, in bytes.
const MaxReason = 512

// Denial is a request that was denied or refused lately, in the answer to Denials.
type Denial struct {
	At     int64 // nanoseconds since the Unix epoch
	UID    uint32
	Job    string // "" if a front-end denied the request: no job got an id
	Repo   string // its path or, of a request that a front-end denied, its id; maximum MaxReason
	Reason string // maximum MaxReason
	// What the front-end said about the request.
	Tool, Runtime, Principal, Request string
}

func (*Denial) op() Op { return OpDenial }

func (n *Denial) fields(c *coder) {
	c.i64(&n.At)
	c.u32(&n.UID)
	c.text(MaxName, &n.Job)
	c.text(MaxReason, &n.Repo, &n.Reason)
	c.text(job.MaxClaim, &n.Tool, &n.Runtime, &n.Principal, &n.Request)
}
