package job

import (
	"context"
	"time"
)

// Phases are when a request went from one part of its life to the next, after its Record's Created. A zero time is a part
// that it did not come to.
type Phases struct {
	Decided  time.Time // the policy has decided
	Launched time.Time // the Runner was given the job; of two attempts, the last one
	Ended    time.Time // the Runner has returned: no process of the job is left
	Stored   time.Time // the Output has what the job wrote
}

// A Part is a part of a request's life.
type Part struct {
	Name     string // a Part constant
	From, To time.Time
}

// Names of a Part, in their order. One ends where the next begins.
const (
	PartDecision = "decision" // what the policy said
	PartStart    = "start"    // the wait for a place, the session, the jail, and all that is done before the program is executed
	PartRun      = "run"      // the program, to the end of its last process
	PartStore    = "store"    // what follows: changes are listed, output is stored
)

// Parts returns what there was of the request's life. The supervisor says how long the program ran, and not when it began:
// it is taken to have ended when the Runner returned, which is a moment later.
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
	if p.Stored.IsZero() { // refused, or corral has failed
		return append(parts, Part{PartStart, p.Decided, p.Ended})
	}
	return append(parts, Part{PartStart, p.Decided, begun}, Part{PartRun, begun, p.Ended}, Part{PartStore, p.Ended, p.Stored})
}

// attempt has the Runner run spec, and notes when. stdio is taken over.
func (e *Engine) attempt(ctx context.Context, record *Record, spec Spec, stdio Stdio) (Result, error) {
	record.Phases.Launched = time.Now()
	result, err := e.Runner.Run(ctx, spec, stdio)
	record.Phases.Ended = time.Now()
	return result, err
}
