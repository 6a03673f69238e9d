package host

import (
	"context"
	"time"

	"corral/internal/fault"
)

// A new process has copies of all descriptors of the supervisor until it has executed its program. If the supervisor and whoever else had
// one of them have closed it meanwhile, it is the new process that closes the last copy, in execve(2). With a descriptor of a client that
// may take as long as the client wants, and whoever started the process would wait for that.

// forkPatience is how long AwaitForks waits: a hundred times as long as a start takes.
const forkPatience = time.Second

// forks are the process's: each is closed when a process that was being started has executed its program.
var forks = struct {
	mu      fault.Mutex
	running map[chan struct{}]struct{} // guarded by mu
}{running: map[chan struct{}]struct{}{}}

// Forking notes that a process is being started. The caller calls done when the process has executed its program, or has ended.
func Forking() (done func()) {
	c := make(chan struct{})
	fault.With(&forks.mu, func() { forks.running[c] = struct{}{} })
	return func() {
		fault.With(&forks.mu, func() { delete(forks.running, c) })
		close(c)
	}
}

// AwaitForks returns when every process that was being started has executed its program: none of them has copies any more of descriptors
// that the supervisor closed before. It waits for a second at most, and not beyond the end of ctx.
func AwaitForks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, forkPatience)
	defer cancel()
	var running []chan struct{}
	fault.With(&forks.mu, func() {
		for c := range forks.running {
			running = append(running, c)
		}
	})
	for _, c := range running {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}
