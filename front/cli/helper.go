package cli

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

	"corral/isolate/client/embed"
)

// ErrHelper is returned by RunHelper if the helper process failed. The process has written the reason to standard error.
var ErrHelper = errors.New("the unprivileged helper process failed")

// ReadQuestion is the start of a command that runs as a helper process: it drops root and decodes its question from
// standard input, at most maxBytes of JSON, into to.
func ReadQuestion(command string, args []string, maxBytes int64, to any) error {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	if err := ParseFlags(f, args, "corral "+command+" is run by corral itself.\n"); err != nil {
		return err
	}
	if err := embed.Drop(); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxBytes)).Decode(to); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// RunHelper runs a command of this program in a helper process that drops root first, because it parses for root what
// others wrote. It returns the helper's standard output; more than maxBytes are an error. It kills the helper when ctx
// ends.
func RunHelper(ctx context.Context, command string, question []byte, maxBytes int64) ([]byte, error) {
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
	answer, err := io.ReadAll(io.LimitReader(stdout, maxBytes+1))
	tooLong := int64(len(answer)) > maxBytes
	if tooLong {
		stop()
	}
	waited := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case tooLong:
		return nil, fmt.Errorf("%s answered more than %d bytes", command, maxBytes)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", command, ctx.Err())
	case errors.As(waited, &exit):
		return nil, ErrHelper
	}
	return answer, errors.Join(err, waited)
}
