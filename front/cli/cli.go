// Package cli has what the commands of corral-front share: exit codes, options, output for people, and helper processes.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/isolate/client/embed"
)

// Failure is the exit code for errors of corral itself, as opposed to a job's.
const Failure = 125

// A Command runs a command line, without the command's own name, and returns the program's exit code. It drops root before it parses
// what others could have written or prints anything, or returns an error.
type Command func(args []string) (int, error)

// End drops root, prints the error of a command or the help text that it was asked for, and returns the exit code of the program.
func End(code int, err error) int {
	if err == nil {
		return code
	}
	var help helpText
	switch dropped := embed.Drop(); {
	case dropped != nil:
		code, err = Failure, errors.Join(err, dropped)
	case errors.As(err, &help):
		code, err = Print(string(help))
	}
	if err == nil {
		return code
	}
	fmt.Fprintln(os.Stderr, text.Lines("corral: "+err.Error()))
	return cmp.Or(code, Failure)
}

// Print writes s to standard output. It returns the exit code 0, or Failure with the error.
func Print(s string) (int, error) {
	if _, err := io.WriteString(os.Stdout, s); err != nil {
		return Failure, err
	}
	return 0, nil
}

// Note writes a line to standard error that is not an error. It is escaped as a whole.
func Note(s string) { fmt.Fprintln(os.Stderr, "corral: note:", text.Escape(s)) }

// Warn writes a message to standard error that is a result of the command and not an error. It may have several
// lines; other control characters are escaped.
func Warn(format string, args ...any) {
	fmt.Fprintln(os.Stderr, text.Lines("corral: "+fmt.Sprintf(format, args...)))
}

// UntilTerminated returns a context that ends when this process receives SIGTERM or SIGINT.
func UntilTerminated() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
}

// UntilStopped returns a context that ends when this process receives SIGTERM, SIGINT or SIGHUP.
func UntilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
}

// IgnorePipes ignores SIGPIPE, so that a write to a pipe or socket that nobody reads returns EPIPE: the signal would end
// the process if the write is to standard output, and does not say which of several readers has stopped.
func IgnorePipes() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// FormatBytes formats a number of bytes for people, with one decimal.
func FormatBytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for size >= 1000 && unit < 4 {
		size, unit = size/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGTP"[unit])
}
