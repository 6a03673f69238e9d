package job

import (
	"errors"
	"os"
)

// A Feeder is an Output that also feeds the job's input while it runs, for a Request that is Streamed.
type Feeder interface {
	Output
	// Stdin creates the pipe and returns the job's end. It is called at most once, before Streams. The Output closes
	// the other end, and must stop writing when the job has ended.
	Stdin() (*os.File, error)
}

// A Screen is an Output that receives the job's terminal, for a Request that has a Terminal. Streams is not called
// then.
type Screen interface {
	Output
	// Terminal takes ownership of the master, see Stdio.
	Terminal(master *os.File)
}

// A Leader is an Output that signals its job.
type Leader interface {
	Output
	// Started receives the Signaler of the job, see Stdio.
	Started(s Signaler)
}

// A Signaler signals a running job.
type Signaler interface {
	// Signal sends a signal to the job's first process or, with everyone, to all of its processes. It has no effect
	// on a job that has ended. An error means that the supervisor could not be reached.
	Signal(number int, everyone bool) error
}

// Errors for an Output that lacks what the request needs; that is a bug in the caller.
var (
	errNoFeeder = errors.New("the request has streamed input, but its output is not a Feeder")
	errNoScreen = errors.New("the request has a terminal, but its output is not a Screen")
)

// connect creates the streams of r's job. fed stops feeding the input and waits until it has stopped.
func connect(r *Request, out Output) (stdio Stdio, fed func(), err error) {
	fed = func() {}
	if leader, ok := out.(Leader); ok {
		stdio.Started = leader.Started
	}
	if r.Terminal != (Size{}) {
		screen, ok := out.(Screen)
		if !ok {
			return Stdio{}, nil, errNoScreen
		}
		stdio.Terminal = screen.Terminal
		return stdio, fed, nil
	}
	if r.Streamed {
		feeder, ok := out.(Feeder)
		if !ok {
			return Stdio{}, nil, errNoFeeder
		}
		stdio.Stdin, err = feeder.Stdin()
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
