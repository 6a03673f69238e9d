package job

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestCode: a job without an exit code has that of shells and timeout(1).
func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Result
		want int
	}{
		{"success", Result{Status: Success}, 0},
		{"failure", Result{Status: Failure, ExitCode: 3}, 3},
		{"signal", Result{Status: Failure, ExitCode: -1, Signal: 15}, 143},
		{"timeout", Result{Status: Timeout, ExitCode: -1, Signal: 9}, 124},
		{"lost", Result{Status: Lost, ExitCode: -1, Signal: 9}, 125},
		{"ended on request", Result{Status: Cancelled, ExitCode: -1, Signal: 9}, 137},
		{"a limit met after the first process", Result{Status: Failure, ExitCode: 0, Limit: LimitMemory}, 137},
	} {
		if got := tt.r.Code(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestRefusalOfJob: what a command says of a job that was not started, and its exit code.
func TestRefusalOfJob(t *testing.T) {
	spec := &Spec{Args: []string{"prog"}, Dir: "sub"}
	script := (&Refusal{Step: "exec", Errno: int(syscall.ENOENT)}).About(&Spec{Args: []string{"./script"}})
	if want := "./script: no such program in the jail, or its interpreter or loader is not there"; script.Message != want {
		t.Errorf("%q, want %q", script.Message, want)
	}
	for _, tt := range []struct {
		step  string
		errno syscall.Errno
		want  string
		code  int
	}{
		{"exec", syscall.ENOENT, "prog: no such program in the jail", 127},
		{"exec", syscall.ENOTDIR, "prog: no such program in the jail", 127},
		{"exec", syscall.EACCES, "prog cannot be executed: permission denied", 126},
		{"cwd", syscall.EXDEV, `working directory "sub" escapes repository root`, 125},
		{"cwd", syscall.ENOENT, `working directory "sub": no such file or directory`, 125},
		{"exec", 0, "as it is", 126},
		{"cwd", 0, "as it is", 125},
		{"limits", 0, "as it is", 125},
	} {
		r := &Refusal{Step: tt.step, Errno: int(tt.errno), Message: "as it is"}
		if got := r.About(spec); got.Message != tt.want || r.Message != "as it is" {
			t.Errorf("%s, %v: %q", tt.step, tt.errno, got.Message)
		}
		if got := CodeOf(fmt.Errorf("wrapped: %w", r)); got != tt.code {
			t.Errorf("%s, %v: %d", tt.step, tt.errno, got)
		}
	}
	if got := CodeOf(errors.New("x")); got != 125 {
		t.Error(got)
	}
}

// TestTooLong: the refusal of a program says which argument or variable is too long for the kernel.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("x", maxString+1)
	refusal := &Refusal{Step: "exec", Errno: int(syscall.E2BIG), Message: "exec: argument list too long"}
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Args: []string{"p", "a", long}}, `p cannot be executed: argument 2 ("xxxxxxxxxxxxxxxxxxxx"…) has 131072 bytes, the maximum of one is 131071`},
		{Spec{Args: []string{"p"}, Env: []string{"A=b", "LONG=" + long}}, `p cannot be executed: the variable "LONG" has 131077 bytes, the maximum of one is 131071`},
		{Spec{Args: []string{"p", long[1:]}}, "p cannot be executed: argument list too long"},
	} {
		if got := refusal.About(&tt.spec).Message; got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
