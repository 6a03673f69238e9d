package host

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestCheckRlimits: a limit above the hard one of this process is refused, with its name, its option and the maximum.
func TestCheckRlimits(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	lower := unix.Rlimit{Cur: own.Cur, Max: own.Cur}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	l := job.Limits{OpenFiles: int64(own.Cur), PIDs: 2, FileSize: job.Unlimited}
	if err := CheckRlimits(l); err != nil {
		t.Errorf("the maximum: %v", err)
	}
	l.OpenFiles++
	var refused *job.Refusal
	if err := CheckRlimits(l); !errors.As(err, &refused) || refused.Step != "limits" || !strings.Contains(refused.Message, "open files") ||
		!strings.Contains(refused.Hint, "--nofile") {
		t.Errorf("one more: %v", err)
	}
}
