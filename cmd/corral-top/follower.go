package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"

	"corral/isolate/wire"
	"corral/store/artifact"
)

// A follower has the end of the output of a job.
type follower struct {
	job  string
	stop context.CancelFunc

	mu   sync.Mutex
	kept []byte // guarded by mu: at most artifact.LiveSize bytes
	done bool   // guarded by mu
	err  error  // guarded by mu: why it has ended, nil if the job has
}

// startFollower follows the output of a job until it ends or stop is called.
func startFollower(e wire.Entry) *follower {
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{job: e.Job, stop: stop}
	go func() {
		err := artifact.Follow(ctx, e.Artifact, e.UID, true, f, func(int64) {})
		f.mu.Lock()
		defer f.mu.Unlock()
		f.done, f.err = true, err
	}()
	return f
}

// Write implements io.Writer.
func (f *follower) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, p...)
	if extra := len(f.kept) - artifact.LiveSize; extra > 0 {
		f.kept = bytes.Clone(f.kept[extra:])
	}
	return len(p), nil
}

func (f *follower) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// tail returns the last n lines, and how the output has ended, "" if it has not.
func (f *follower) tail(n int) (lines []string, end string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range bytes.SplitSeq(bytes.TrimSuffix(f.kept, []byte("\n")), []byte("\n")) {
		lines = append(lines, strings.TrimSuffix(string(line), "\r"))
	}
	switch {
	case !f.done:
	case f.err != nil && !errors.Is(f.err, context.Canceled):
		end = f.err.Error()
	default:
		end = "the job has ended"
	}
	return lines[max(0, len(lines)-n):], end
}
