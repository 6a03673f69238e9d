package policy

import (
	"context"

	"corral/job"
)

// An Explanation is a decision, step by step.
type Explanation struct {
	Steps    []Step
	Decision job.Decision
	Limits   job.Limits // that hold; zero if the chain ended before they were known
	Env      []string   // names of the job's variables, sorted; nil if the chain ended before
	Program  string     // the path that would be executed, or a command's program as it is asked for; "" without one
}

// A Step is one rule, and what it said.
type Step struct {
	Rule, Reason string // its name, and why there is such a rule
	Outcome      Outcome
	Found        string   // what it found out, "" for nothing
	Against      []string // why it is against the request
}

// An Outcome is what a step said.
type Outcome string

// Outcomes of a step.
const (
	Passed  Outcome = "pass"
	Against Outcome = "deny"
	Skipped Outcome = "skipped" // an earlier one was against the request
)

// Explain decides as Decide does, and says what each step made of the request.
func (p *Policy) Explain(ctx context.Context, r *job.Request) Explanation {
	c := p.chain(r)
	var e Explanation
	rule, reasons := "", []string(nil)
	for _, s := range steps {
		one := Step{Rule: s.rule, Reason: s.reason, Outcome: Skipped}
		if rule == "" {
			one.Against = s.against(ctx, c)
			one.Outcome = Passed
			if len(one.Against) > 0 {
				one.Outcome, rule, reasons = Against, s.rule, one.Against
			} else {
				one.Found = s.found(c)
			}
		}
		e.Steps = append(e.Steps, one)
	}
	e.Decision = c.decision(rule, reasons)
	e.Limits, e.Program = c.limits, c.choice.Path
	if c.isCommand() {
		e.Program = c.r.Command[0]
	}
	if env := c.variables(); env != nil {
		e.Env = env.names()
	}
	return e
}
