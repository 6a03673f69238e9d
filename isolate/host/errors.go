package host

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"corral/job"
)

// ErrEnding refuses a request because the supervisor is ending.
var ErrEnding = &job.Refusal{Step: "request", Message: "the supervisor is ending"}

// SplitHint splits an error's text into message and hint.
func SplitHint(err error) (message, hint string) {
	message, hint, _ = strings.Cut(err.Error(), "\nhint: ")
	return message, hint
}

// ErrnoOf returns the kernel's error number in err, or 0 if there is none.
func ErrnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return 0
}

// UnwrapErrno returns the kernel's error number in err, or err if there is none.
func UnwrapErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
