// Package client stands for requests to a process that runs native steps.
package client

import "time"

// A RunRequest asks for native steps.
type RunRequest struct {
	Id                string
	Timeout           *time.Duration
	WorkDir, BuildDir string
	Env               map[string]string
	Steps             string
	Variables         []Variable
}

// A Variable is one of the job.
type Variable struct {
	Key, Value   string
	File, Masked bool
}

// A Status says how steps ended.
type Status struct {
	State     State
	Message   string
	ErrorKind ErrorKind
}

type (
	State     string
	ErrorKind string
)

const (
	StateSuccess   State = "success"
	StateCancelled State = "cancelled"

	ErrorInternal    ErrorKind = "internal"
	ErrorStepFailure ErrorKind = "step failure"
	ErrorCancelled   ErrorKind = "cancelled"
	ErrorTimeout     ErrorKind = "timeout"
	ErrorUnknown     ErrorKind = "unknown"
)

func (s State) String() string { return string(s) }
