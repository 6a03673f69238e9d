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

// errSaid is returned if the child failed. The child has written the reason to standard error.
var errSaid = errors.New("the unprivileged helper process failed")

// beAsked is the start of such a child, a command without arguments: it drops root and decodes its question, of at most
// most bytes, into to. ended is true if there is nothing left to do.
func beAsked(command string, args []string, most int64, to any) (ended bool, code int, err error) {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	if ended, code, err := parseFlags(f, args, "corral "+command+" is run by corral itself.\n"); ended {
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

// askUser runs a command of this program in a child that first drops root, because it parses for root what others
// wrote. It returns the child's standard output; more than most bytes are an error. It ends the child when ctx ends.
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
