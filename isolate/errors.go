package isolate

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"corral/job"
)

// errEnding refuses a request because the supervisor is ending.
var errEnding = &job.Refusal{Step: "request", Message: "the supervisor is ending"}

// splitHint splits an error's text into message and hint.
func splitHint(err error) (message, hint string) {
	message, hint, _ = strings.Cut(err.Error(), "\nhint: ")
	return message, hint
}

// errnoOf returns the kernel's error number in err, or 0 if there is none.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return 0
}

// unwrapErrno returns the kernel's error number in err, or err if there is none.
func unwrapErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
