package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/job"
)

// openTerminal returns the terminal that this process was started on.
func openTerminal() (*hostTerminal, error) {
	t, err := hostTerminalOf(os.Stdin, os.Stdout)
	if err != nil {
		return nil, fmt.Errorf("--tty: %w\nhint: run without --tty; --stdin passes a pipe", err)
	}
	return t, nil
}

// runTerminal joins the job's terminal to this process's, which is raw while the job runs, so that every key goes to the
// job.
func (o *runOptions) runTerminal(c *client.Client, t *hostTerminal) (job.Result, error) {
	masters := make(chan *os.File, 1)
	r, err := c.Start(o.spec, job.Stdio{}, func(m *os.File) { masters <- m })
	if err != nil {
		return job.Result{}, err
	}
	// Signals are caught from before the terminal is raw until it is restored, so that none ends this process meanwhile.
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
			var far farTerminal
			if far, err = openMaster(m, ended); err == nil {
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

// waitTerminal waits for the job's terminal. It returns nil if the job ended before it had one. If the job had one and
// ended, its output still has to be read, so the terminal wins over ended.
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

// abortUnseen kills a job whose output cannot be shown: it could not be typed at either.
func abortUnseen(t *hostTerminal, r *client.Run, err error) {
	if errors.Is(err, unix.EPIPE) {
		t.Restore()
		os.Exit(128 + int(unix.SIGPIPE)) // as SIGPIPE does without a terminal, see deliver
	}
	_ = r.Kill()
}

// waitShown waits until everything that the job wrote is on the terminal, and returns the error of writing it. If the job
// is lost, it waits for a second only: another process may have the job's terminal open and not end.
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
