// Package schema stands for the form of native steps, the `run` keyword of a job, which jobs with a script do not have.
package schema

// A Step is one native step.
type Step struct {
	Name   *string    `json:"name,omitempty"`
	Script *string    `json:"script,omitempty"`
	Step   any        `json:"step,omitempty"`
	Inputs StepInputs `json:"inputs,omitempty"`
	Run    []Step     `json:"run,omitempty"`
}

// StepInputs are the arguments of a step.
type StepInputs map[string]any
