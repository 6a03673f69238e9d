package job

import (
	"errors"
	"os"
)

// A Feeder is an Output that also has the input of its job, as it comes: of a Request that is Streamed.
type Feeder interface {
	Output
	// Stdin makes the pipe and returns the job's end. It is called at most once, before Streams. To close the other end,
	// and to give up writing when the job has ended, is the Output's.
	Stdin() (*os.File, error)
}

// A Screen is an Output that takes the terminal of its job: of a Request that has a Terminal. Streams is not called then.
type Screen interface {
	Output
	// Terminal takes over the master, see Stdio.
	Terminal(master *os.File)
}

// A Leader is an Output that wants to signal its job.
type Leader interface {
	Output
	// Started takes what signals the job, see Stdio.
	Started(s Signaler)
}

// A Signaler signals a job that runs.
type Signaler interface {
	// Signal sends a signal to the job's first process or, with everyone, to all of its processes. To a job that has ended
	// it does nothing. The error is of the way to the supervisor.
	Signal(number int, everyone bool) error
}

// Outputs that cannot do what a request needs are a mistake of the program.
var (
	errNoFeeder = errors.New("the output has no input to stream")
	errNoScreen = errors.New("the output takes no terminal")
)

// connect makes what the job of r reads and writes. fed ends the feeding and waits for that.
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

// feed returns the reading end of a pipe that has text in it, nil for none. fed ends the feeding and waits for that.
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
		_, _ = w.WriteString(text) // a job need not read it
		w.Close()
	}()
	return stdin, func() {
		w.Close() // somebody may hold the other end open without reading
		<-done
	}, nil
}
