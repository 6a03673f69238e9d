package job

import (
	"context"
	"time"
)

// Phases are the times at which a request passed from one part of its life to the next, after its Record's Created. A
// zero time means that the request did not get that far.
type Phases struct {
	Decided  time.Time // the policy returned its decision
	Launched time.Time // the Runner was given the job; of two attempts, the last one
	Ended    time.Time // the Runner returned: no process of the job is left
	Stored   time.Time // the Output has stored what the job wrote
}

// A Part is one part of a request's life.
type Part struct {
	Name     string // a Part constant
	From, To time.Time
}

// Names of the parts, in order. Each ends where the next begins.
const (
	PartDecision = "decision" // the policy's decision
	PartStart    = "start"    // waiting in the queue, the session, the jail, and everything else before the program is executed
	PartRun      = "run"      // the program, until the end of its last process
	PartStore    = "store"    // afterwards: listing changes, storing the output
)

// Parts returns the parts of the request's life. The supervisor reports how long the program ran but not when it
// started: it is assumed to have ended when the Runner returned, which is slightly later.
func (r *Record) Parts() []Part {
	p := &r.Phases
	if p.Decided.IsZero() {
		return nil
	}
	parts := []Part{{PartDecision, r.Created, p.Decided}}
	if p.Ended.IsZero() {
		return parts
	}
	begun := p.Ended.Add(-max(r.Result.Usage.Wall, 0))
	if begun.Before(p.Launched) {
		begun = p.Launched
	}
	if p.Stored.IsZero() { // refused, or corral failed
		return append(parts, Part{PartStart, p.Decided, p.Ended})
	}
	return append(parts, Part{PartStart, p.Decided, begun}, Part{PartRun, begun, p.Ended}, Part{PartStore, p.Ended, p.Stored})
}

// attempt has the Runner run spec, and records the times. It takes ownership of stdio.
func (e *Engine) attempt(ctx context.Context, record *Record, spec Spec, stdio Stdio) (Result, error) {
	record.Phases.Launched = time.Now()
	result, err := e.Runner.Run(ctx, spec, stdio)
	record.Phases.Ended = time.Now()
	return result, err
}
