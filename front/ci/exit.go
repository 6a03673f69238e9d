package ci

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/text"
	"corral/job"
)

// A scriptError is the error of a stage whose script failed: the job has failed, and the CI system works.
type scriptError struct {
	code int    // exit code of the script, 1 to 255
	why  string // beyond what the script wrote, for example that a limit was reached; "" for nothing
}

func (e *scriptError) Error() string {
	if e.why != "" {
		return e.why
	}
	return "exit status " + strconv.Itoa(e.code)
}

// exitCode returns the exit code that the runner asked for: one for a script that failed, another for everything else.
func exitCode(err error) int {
	var script *scriptError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &script):
		return asked("BUILD_FAILURE_EXIT_CODE", 1)
	}
	return asked("SYSTEM_FAILURE_EXIT_CODE", cli.Failure)
}

// asked returns the exit code that the runner set in a variable.
func asked(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil && n > 0 && n < 256 {
		return n
	}
	return otherwise
}

// silent returns err unless all of it is the script's own failure, which the job's log already shows.
func silent(err error) error {
	var script *scriptError
	if errors.As(err, &script) && script.why == "" {
		return nil
	}
	return err
}

// outcome returns nil for a script that succeeded, a *scriptError for one that did not, and another error for a stage that
// corral could not run to its end.
func outcome(r job.Result, limits job.Limits) error {
	code := r.ExitCode
	if r.Signal != 0 {
		code = 128 + r.Signal
	}
	switch {
	case r.Status == job.Success:
		return nil
	case r.Status == job.Lost:
		return errors.New("the supervisor ended while the stage ran")
	case r.Status == job.Timeout:
		return &scriptError{124, fmt.Sprintf("the stage was ended at its deadline, %v", limits.Wall)}
	case r.Stopped:
		return &scriptError{code, "corral kill ended the stage"}
	case r.Status == job.Cancelled:
		return &scriptError{128 + int(unix.SIGTERM), "the stage was cancelled"}
	case r.Limit != "":
		return &scriptError{max(code, 1), "the stage reached its limit of " + r.Limit + describe(r.Limit, limits)}
	case r.Signal != 0:
		return &scriptError{code, "signal " + unix.SignalName(syscall.Signal(r.Signal)) + " ended the stage"}
	}
	return &scriptError{code, ""}
}

// describe returns the value of a limit, for people.
func describe(name string, limits job.Limits) string {
	defaults := job.Defaults()
	fallback := defaults.Fields()
	for i, f := range limits.Fields() {
		if f.Name != name {
			continue
		}
		if *f.Value == 0 {
			f.Value = fallback[i].Value
		}
		return ", " + f.Format(*f.Value)
	}
	return ""
}

// explain adds to a refusal what to do about it, where this command knows more than the supervisor.
func explain(err error, program string) error {
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || refusal.Step != "exec" {
		return err
	}
	return fmt.Errorf("%s cannot be executed in the jail: %w\nhint: install it below /usr, or add its directory to toolchains in the "+
		"configuration of the supervisor", text.Quote(program), syscall.Errno(refusal.Errno))
}
