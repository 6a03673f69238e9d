package policy

import (
	"context"

	"corral/job"
)

// An Explanation is a decision with the outcome of each step.
type Explanation struct {
	Steps    []Step
	Decision job.Decision
	Limits   job.Limits // that apply; zero if the chain ended before they were known
	Env      []string   // names of the job's variables, sorted; nil if the chain ended earlier
	Program  string     // the path that would be executed, or a command's program as requested; "" if none
}

// A Step is one rule and its outcome.
type Step struct {
	Rule, Reason string // its name, and why the rule exists
	Outcome      Outcome
	Found        string   // what the step determined, "" if nothing
	Against      []string // why it denied the request
}

// An Outcome is the outcome of one step.
type Outcome string

// Outcomes of a step.
const (
	Passed  Outcome = "pass"
	Against Outcome = "deny"
	Skipped Outcome = "skipped" // an earlier step denied the request
)

// Explain decides on a request, and returns the outcome of each step.
func (p *Policy) Explain(ctx context.Context, r *job.Request) Explanation {
	c := p.chain(r)
	var e Explanation
	e.Decision = c.decide(ctx, func(s step, against []string) {
		one := Step{Rule: s.rule, Reason: s.reason, Outcome: Against, Against: against}
		if len(against) == 0 {
			one.Outcome, one.Found = Passed, s.found(c)
		}
		e.Steps = append(e.Steps, one)
	})
	for _, s := range steps[len(e.Steps):] {
		e.Steps = append(e.Steps, Step{Rule: s.rule, Reason: s.reason, Outcome: Skipped})
	}
	e.Limits, e.Program = c.limits, c.choice.Path
	if c.isCommand() {
		e.Program = c.r.Command[0]
	}
	if env := c.variables(); env != nil {
		e.Env = env.names()
	}
	return e
}
