// Package log is where the programs that serve tell how they do: lines on standard error, for who operates them. Values in
// a line are those of clients and jobs, too: paths, names, errors that quote them. A line is never more than one, none of
// its characters acts on a terminal, and a value has a bound.
package log

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"corral/internal/text"
)

// maxValue bounds a value, in bytes before any are escaped: the longest path fits, and the stack of a goroutine that panics.
const maxValue = 16 << 10

// Stderr returns a log on standard error: text on a terminal or if that is wanted, JSON else.
func Stderr(level slog.Level, plain bool) *slog.Logger {
	if !plain {
		_, err := unix.IoctlGetTermios(2, unix.TCGETS)
		plain = err == nil
	}
	return New(os.Stderr, level, plain)
}

// New returns a log of text or of JSON, a line with each Write.
func New(w io.Writer, level slog.Level, plain bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cut}
	if plain {
		return slog.New(slog.NewTextHandler(escaping{w}, options))
	}
	return slog.New(slog.NewJSONHandler(escaping{w}, options))
}

// cut bounds a value. What is no text is told as one if it is too long.
func cut(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(text.Cut(v.String(), maxValue))
	case slog.KindAny:
		// As fmt has it: that survives an error which panics, as one that is a nil pointer does.
		s := fmt.Sprint(v.Any())
		if _, ok := v.Any().(error); ok || len(s) > maxValue {
			a.Value = slog.StringValue(text.Cut(s, maxValue))
		}
	}
	return a
}

// An escaping writer escapes what slog leaves as it is: of JSON DEL, C1 controls and what turns the direction of text, of text DEL.
type escaping struct{ w io.Writer }

func (e escaping) Write(line []byte) (int, error) {
	if _, err := e.w.Write(text.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
