package run

import (
	"context"
	"fmt"
	"time"

	"corral/job"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A Process is a job that may outlive its call, see ctxtools.Suite. Its methods may be called by several goroutines at once.
type Process interface {
	// Started returns a channel that is closed when the process can be signaled.
	Started() <-chan struct{}
	// Done returns a channel that is closed when the process has ended.
	Done() <-chan struct{}
	// Cancel ends the process and returns when it has ended.
	Cancel()
	// Detach makes the process one of the background jobs of its caller's session, which ctx_job and job follow. ended reports
	// that it had ended before; it is not listed then. The error is an *Error with code DENIED if there is a maximum of background
	// jobs; the process runs on then.
	Detach() (ended bool, err error)
	// Snapshot returns the current state. The error is corral's own failure to run the process, as an *Error where it is known.
	Snapshot() (Snapshot, error)
	// Learn indexes the output of a process that ended without having been detached.
	Learn(ctx context.Context)
}

// A Snapshot is the state of a Process.
type Snapshot struct {
	ID      string
	Label   string // under which the output is indexed: "execute:shell"
	Repo    string
	Running bool
	// Elapsed is how long the process has run or ran, with its time in the queue.
	Elapsed time.Duration
	// Record and Output describe a process that has ended. While it runs, Record is nil and Output has the margins so far.
	Record *job.Record
	Output artifact.Captured
}

// Await waits until p has ended, for at most wait from its start, which is after queue at the latest. It reports whether p has ended.
func Await(ctx context.Context, p Process, wait, queue time.Duration) bool {
	started := p.Started()
	timer := time.NewTimer(queue + wait)
	defer timer.Stop()
	for {
		select {
		case <-p.Done():
			return true
		case <-started:
			started = nil
			timer.Reset(wait)
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// A Ports returns the TCP ports at which jobs of the caller's sessions in a repository listen, as its other jobs reach them. nil:
// they are not known.
type Ports func(ctx context.Context, c tool.Caller, repo string) []uint16

// maxAddresses is the maximum number of addresses that a reply has.
const maxAddresses = 8

// Addresses returns where jobs listen, such as 127.0.0.1:8000, and "…" if there are more; nil if there are none.
func (p Ports) Addresses(ctx context.Context, c tool.Caller, repo string) []string {
	if p == nil {
		return nil
	}
	ports := p(ctx, c, repo)
	var list []string
	for _, port := range ports[:min(len(ports), maxAddresses)] {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", port))
	}
	if len(ports) > maxAddresses {
		list = append(list, "…")
	}
	return list
}
