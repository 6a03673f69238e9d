package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/terminal"
	"corral/isolate/client"
	"corral/job"
)

// openTerminal returns the terminal that this process was started on.
func openTerminal() (*terminal.Terminal, error) {
	t, err := terminal.Open(os.Stdin, os.Stdout)
	if err != nil {
		return nil, fmt.Errorf("--tty: %w\nhint: leave --tty away; --stdin passes a pipe", err)
	}
	return t, nil
}

// runTerminal joins the job's terminal to ours: ours is raw while the job runs, so that every key is the job's.
func (o *runOptions) runTerminal(c *client.Client, t *terminal.Terminal) (job.Result, error) {
	masters := make(chan *os.File, 1)
	r, err := c.Start(o.spec, job.Stdio{}, func(m *os.File) { masters <- m })
	if err != nil {
		return job.Result{}, err
	}
	// Signals are caught from before the terminal is raw until it is restored.
	signals := newSignalForwarder(t.Restore, unix.SIGQUIT)
	defer signals.follow(r, catchAfter)()
	signals.begin()
	defer t.Restore()
	if err := t.Raw(); err != nil {
		_ = r.Kill()
		_, _ = r.Wait()
		return job.Result{}, err
	}
	ended, joined := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		if m := waitTerminal(masters, ended); m != nil {
			var far terminal.Far
			if far, err = terminal.Master(m, ended); err == nil {
				err = t.Join(far)
			}
		}
		if err != nil {
			abortUnseen(t, r, err)
		}
		joined <- err
	}()
	result, err := r.Wait()
	close(ended)
	return result, errors.Join(err, waitShown(joined, err != nil))
}

// waitTerminal waits for the job's terminal; it is nil if the job ended without. One that has ended may have had it, and what it
// wrote is still to be read.
func waitTerminal(masters <-chan *os.File, ended <-chan struct{}) *os.File {
	select {
	case m := <-masters:
		return m
	case <-ended:
	}
	select {
	case m := <-masters:
		return m
	default:
		return nil
	}
}

// abortUnseen ends a job whose output nobody will see: it would have no keyboard either.
func abortUnseen(t *terminal.Terminal, r *client.Run, err error) {
	if errors.Is(err, unix.EPIPE) {
		t.Restore()
		os.Exit(128 + int(unix.SIGPIPE)) // as without a terminal, see deliver
	}
	_ = r.Kill()
}

// waitShown waits until everything that the job wrote is on the terminal, and returns what was in the way. Of a job that was
// lost nothing is known: its processes end, but who else has its terminal open may not.
func waitShown(joined <-chan error, lost bool) error {
	var patient <-chan time.Time
	if lost {
		patient = time.After(time.Second)
	}
	select {
	case err := <-joined:
		if err != nil {
			return fmt.Errorf("standard output: %w", errnoOf(err))
		}
	case <-patient:
	}
	return nil
}
