package job

// A Refusal is the error for a job that was not started.
type Refusal struct {
	// Step is the step that failed: a step of the confinement, or one of the supervisor's before it, such as "request", "repo", "limits",
	// "audit" or "jail". docs/reference/cli.md lists them.
	Step    string
	Errno   int // errno reported by the kernel, or 0
	Message string
	Hint    string // what the user can do about it, or ""
}

// Error returns the message, with the hint on a line of its own.
func (r *Refusal) Error() string {
	if r.Hint != "" {
		return r.Message + "\nhint: " + r.Hint
	}
	return r.Message
}
