// Package cli has what the commands of corral-front share: exit codes, options, output for people, and helper processes.
package cli

import (
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

// A Command runs a command line, without the command's own name. It drops root before it parses what others could have written or
// prints anything, or returns an error. The exit code of the program is Failure after an error, unless Exit gave it another one.
type Command func(args []string) error

// An exit is the end of a command with an exit code of its own.
type exit struct {
	code int   // not 0
	err  error // nil: nothing is printed
}

// Error returns the text of the error.
func (e *exit) Error() string { return fmt.Sprint(e.err) }

// Exit returns an error for the exit code of a command: what is printed is err, if any. It returns err for code 0.
func Exit(code int, err error) error {
	if code == 0 {
		return err
	}
	return &exit{code, err}
}

// End drops root, prints the error of a command or the help text that it was asked for, and returns the exit code of the program.
func End(err error) int {
	code := Failure
	if own := (*exit)(nil); errors.As(err, &own) {
		code, err = own.code, own.err
	} else if err == nil {
		code = 0
	}
	if err == nil {
		return code
	}
	var help helpText
	switch dropped := embed.Drop(); {
	case dropped != nil:
		code, err = Failure, errors.Join(err, dropped)
	case errors.As(err, &help):
		if err = Print(string(help)); err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, text.Lines("corral: "+err.Error()))
	return code
}

// Print writes s to standard output.
func Print(s string) error {
	_, err := io.WriteString(os.Stdout, s)
	return err
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
