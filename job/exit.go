package job

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Exit codes of commands that run one job, where it has none of its own. Those for a program that could not be started follow the
// convention of shells.
const (
	exitTimeout = 124 // as timeout(1)
	exitFailure = 125
	exitNoExec  = 126
	exitMissing = 127
)

// Code returns the exit code of a command that ran the job: the job's own, or the one that shells and timeout(1) use for a job that
// has none.
func (r *Result) Code() int {
	switch {
	case r.Status == Timeout:
		return exitTimeout
	case r.Status == Lost:
		return exitFailure
	case r.Signal != 0:
		return 128 + r.Signal
	case r.Status == Failure && r.ExitCode == 0:
		return 128 + int(syscall.SIGKILL) // its first process had exited when a limit killed the rest
	}
	return r.ExitCode
}

// CodeOf returns the exit code of a command that could not run a job: 127 or 126 if the program is missing or cannot be executed, and
// otherwise 125.
func CodeOf(err error) int {
	var r *Refusal
	if !errors.As(err, &r) || r.Step != "exec" {
		return exitFailure
	}
	if errno := syscall.Errno(r.Errno); errno == syscall.ENOENT || errno == syscall.ENOTDIR {
		return exitMissing
	}
	return exitNoExec
}

// maxString is the maximum of one argument or variable in bytes (MAX_ARG_STRLEN of execve(2), with its NUL).
const maxString = 128<<10 - 1

// tooLong names the argument or variable that execve(2) does not take; "" if it is their sum.
func (s *Spec) tooLong() string {
	for n, arg := range s.Args {
		if len(arg) > maxString {
			return fmt.Sprintf("argument %d (%.20q…) has %d bytes, the maximum of one is %d", n, arg, len(arg), maxString)
		}
	}
	for _, v := range s.Env {
		if len(v) > maxString {
			name, _, _ := strings.Cut(v, "=")
			return fmt.Sprintf("the variable %.40q has %d bytes, the maximum of one is %d", name, len(v), maxString)
		}
	}
	return ""
}

// About returns r with the program and the working directory of spec in its message, which the supervisor does not name.
func (r *Refusal) About(spec *Spec) *Refusal {
	errno := syscall.Errno(r.Errno)
	out := *r
	switch {
	case errno == 0: // the message says why; there is nothing that the kernel refused
	case r.Step == "exec" && CodeOf(r) == exitMissing:
		out.Message = fmt.Sprintf("%s: no such program in the jail", spec.Args[0])
		if strings.Contains(spec.Args[0], "/") { // the kernel's answer is the same
			out.Message += ", or its interpreter or loader is not there"
		}
	case r.Step == "exec" && errno == syscall.E2BIG && spec.tooLong() != "":
		out.Message = fmt.Sprintf("%s cannot be executed: %s", spec.Args[0], spec.tooLong())
	case r.Step == "exec":
		out.Message = fmt.Sprintf("%s cannot be executed: %v", spec.Args[0], errno)
	case r.Step == "cwd" && errno == syscall.EXDEV:
		out.Message = fmt.Sprintf("working directory %q escapes repository root", spec.Dir)
	case r.Step == "cwd":
		out.Message = fmt.Sprintf("working directory %q: %v", spec.Dir, errno)
	}
	return &out
}
