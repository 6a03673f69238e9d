package job

import (
	"errors"
	"os"
	"time"
)

// Hooks connect a caller with its job while that waits and runs. A nil hook is not called.
type Hooks struct {
	// Stdin creates the pipe of the input of a Streamed Request, which requires it, and returns the job's end. It is
	// called at most once, before Output.Streams. The caller closes the other end, and must stop writing when the job
	// has ended.
	Stdin func() (*os.File, error)
	// Terminal takes ownership of the master of the job's terminal, see Stdio. A Request with a Terminal requires it,
	// and Output.Streams is not called for it.
	Terminal func(master *os.File)
	// Started receives the Signaler of each attempt to run the job, see Stdio.
	Started func(s Signaler)
	// Progress is called at intervals, see Engine.Every, with the time since the request began, including its wait in
	// the queue, and the number of bytes that the job has written so far. It is not called after Run has returned.
	Progress func(elapsed time.Duration, stdout, stderr int64)
}

// A Signaler signals a running job.
type Signaler interface {
	// Signal sends a signal to the job's first process or, with everyone, to all of its processes. It has no effect
	// on a job that has ended. An error means that the supervisor could not be reached.
	Signal(number int, everyone bool) error
	// End is Signal to all processes, which are killed if they have not ended when Limits.KillAfter has passed.
	End(number int) error
}

// Errors for a hook that the request requires; that is a bug in the caller.
var (
	errNoStdin    = errors.New("the request has streamed input, but there is no hook for it")
	errNoTerminal = errors.New("the request has a terminal, but there is no hook for it")
)

// connect creates the streams of r's job. fed stops feeding the input and waits until it has stopped.
func connect(r *Request, out Output, h Hooks) (stdio Stdio, fed func(), err error) {
	fed = func() {}
	stdio.Started = h.Started
	if r.Terminal != (Size{}) {
		if h.Terminal == nil {
			return Stdio{}, nil, errNoTerminal
		}
		stdio.Terminal = h.Terminal
		return stdio, fed, nil
	}
	if r.Streamed {
		if h.Stdin == nil {
			return Stdio{}, nil, errNoStdin
		}
		stdio.Stdin, err = h.Stdin()
	} else {
		stdio.Stdin, fed, err = feed(r.Stdin)
	}
	if err != nil {
		return Stdio{}, nil, err
	}
	if stdio.Stdout, stdio.Stderr, err = out.Streams(); err != nil {
		if stdio.Stdin != nil {
			stdio.Stdin.Close()
		}
		fed()
		return Stdio{}, nil, err
	}
	return stdio, fed, nil
}

// feed returns the read end of a pipe and writes text to it in the background; it returns nil if text is empty. fed
// stops writing and waits until it has stopped.
func feed(text string) (stdin *os.File, fed func(), err error) {
	if text == "" {
		return nil, func() {}, nil
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.WriteString(text) // the job may not read it; errors do not matter
		w.Close()
	}()
	return stdin, func() {
		w.Close() // unblocks the write: another process may hold the read end open without reading
		<-done
	}, nil
}
