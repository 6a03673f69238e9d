package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// errSaid is that a child has ended with an error, which it has written to standard error.
var errSaid = errors.New("a process without root's rights has failed")

// beAsked is the beginning of such a child, of a command without arguments: it gives root up and reads its question, of at
// most so many bytes, into what to points to. ended says that there is nothing more to do.
func beAsked(command string, args []string, most int64, to any) (ended bool, code int, err error) {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	if ended, code, err := parseFlags(f, args, "corral "+command+" is for corral itself.\n"); ended {
		return true, code, err
	}
	if err := dropRoot(); err != nil {
		return true, failure, err
	}
	if err := json.NewDecoder(io.LimitReader(os.Stdin, most)).Decode(to); err != nil {
		return true, failure, fmt.Errorf("%s: %w", command, err)
	}
	return false, 0, nil
}

// askUser has a command of this program answer a question in a child, which gives root up first: it reads for root what
// others wrote. An answer of more than most bytes is an error, and so is none before ctx ends.
func askUser(ctx context.Context, command string, question []byte, most int64) ([]byte, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command)
	cmd.Stdin, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(question), os.Stderr, time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(stdout, most+1))
	tooLong := int64(len(answer)) > most
	if tooLong {
		stop()
	}
	waited := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case tooLong:
		return nil, fmt.Errorf("%s answered more than %d bytes", command, most)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", command, ctx.Err())
	case errors.As(waited, &exit):
		return nil, errSaid
	}
	return answer, errors.Join(err, waited)
}
