// Package gracefulexitcmd stands for how native steps end their processes.
package gracefulexitcmd

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// New returns a command that gets SIGTERM when ctx ends, and is killed delay later.
func New(ctx context.Context, delay time.Duration, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = delay
	return cmd
}
