package wire

import "corral/job"

// claim appends the front-end's claims about a request. Texts longer than the audit log keeps are cut here already.
func (e *encoder) claim(c job.Claim) {
	for _, f := range c.Fields() {
		e.text(*f.Value, f.Max)
	}
}

func (d *decoder) claim() job.Claim {
	var c job.Claim
	for _, f := range c.Fields() {
		*f.Value = d.text(f.Max)
	}
	return c
}

// Denied requests an audit record of a request that the front-end denied. The reply is an Answer.
type Denied struct{ Claim job.Claim }

// Append encodes m as a message with tag.
func (m *Denied) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpDenied, tag)
	e.claim(m.Claim)
	return e.b
}

// ReadDenied decodes the body of a Denied.
func ReadDenied(body []byte) (Denied, error) {
	d := decoder{b: body}
	m := Denied{d.claim()}
	return m, d.done()
}

// State requests the directory in which a user's front-ends keep their state. The reply is an Answer, with the
// directory's descriptor if there is no error.
type State struct{ UID uint32 }

// Append encodes m as a message with tag.
func (m State) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpState, tag)
	e.u32(m.UID)
	return e.b
}

// ReadState decodes the body of a State.
func ReadState(body []byte) (State, error) {
	d := decoder{b: body}
	m := State{d.u32()}
	return m, d.done()
}

// Answer is the reply to a request without a result of its own.
type Answer struct{ Error string } // "" is success; maximum MaxText bytes

// Append encodes m as the answer to tag.
func (m Answer) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpAnswer, tag)
	e.text(m.Error, MaxText)
	return e.b
}

// ReadAnswer decodes the body of an Answer.
func ReadAnswer(body []byte) (Answer, error) {
	d := decoder{b: body}
	m := Answer{d.text(MaxText)}
	return m, d.done()
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

func (n *Denial) claims() []*string { return []*string{&n.Tool, &n.Runtime, &n.Principal, &n.Request} }

// Append encodes n as part of the answer to tag.
func (n *Denial) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpDenial, tag)
	e.i64(n.At)
	e.u32(n.UID)
	e.text(n.Job, MaxName)
	e.text(n.Repo, MaxReason)
	e.text(n.Reason, MaxReason)
	for _, claim := range n.claims() {
		e.text(*claim, job.MaxClaim)
	}
	return e.b
}

// ReadDenial decodes the body of a Denial.
func ReadDenial(body []byte) (Denial, error) {
	d := decoder{b: body}
	n := Denial{At: d.i64(), UID: d.u32(), Job: d.text(MaxName), Repo: d.text(MaxReason), Reason: d.text(MaxReason)}
	for _, claim := range n.claims() {
		*claim = d.text(job.MaxClaim)
	}
	return n, d.done()
}
