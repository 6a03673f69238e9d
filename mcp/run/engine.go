// Package run holds what the tools that run jobs share: the interfaces that they run them with, progress while a job runs, and
// the description of how it ended.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"corral/job"
	"corral/mcp/tool"
)

// An Engine runs jobs. *job.Engine implements it; front-ends count and share its jobs.
type Engine interface {
	// Run decides on r, runs its job if it is allowed, and returns the record of it. out receives the output.
	Run(ctx context.Context, r *job.Request, out job.Output, h job.Hooks) (*job.Record, error)
}

// Progress returns hooks that send progress to the client. They are empty if the client did not request progress, so
// that no timer wakes up for it.
func Progress(c tool.Caller) job.Hooks {
	if c.NoProgress {
		return job.Hooks{}
	}
	return job.Hooks{Progress: func(elapsed time.Duration, stdout, stderr int64) {
		seconds := elapsed.Round(time.Second)
		c.Progress(elapsed.Seconds(), fmt.Sprintf("running for %s, %d bytes of output so far", seconds, stdout+stderr))
	}}
}

// Failed converts an error of the engine to an *Error. The message is for people; the hint is in the details.
func Failed(err error) error {
	if errors.Is(err, job.ErrUnavailable) {
		return &tool.Error{Code: tool.CodeUnavailable, Message: tool.Clean(err.Error())}
	}
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		e := &tool.Error{Code: refusalCode(refusal), Message: tool.Clean(refusal.Message), Details: map[string]any{"step": refusal.Step}}
		if refusal.Hint != "" {
			e.Details["hint"] = refusal.Hint
		}
		return e
	}
	return err
}

// refusalCode returns the code for a refusal by the supervisor that is not about the job's parameters. In steps in
// which nothing of corral failed the code is UNAVAILABLE, and the message says what is missing: the repository, or
// capacity for a session or a job.
func refusalCode(r *job.Refusal) string {
	switch r.Step {
	case "repo", "session", "request":
		return tool.CodeUnavailable
	}
	return tool.CodeInternal
}
