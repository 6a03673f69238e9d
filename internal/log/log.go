// Package log makes the diagnostic log of programs that serve: lines on standard error for their operator. Values can come from
// clients and jobs: paths, names, errors that quote them. A record is always one line, none of its characters controls a terminal,
// and the size of a value is bounded.
package log

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"corral/internal/text"
)

// maxValue bounds a value, in bytes before escaping. The longest path fits, and the stack trace of a panic.
const maxValue = 16 << 10

// Stderr returns a logger to standard error. It writes text if plain is set or standard error is a terminal, otherwise JSON.
func Stderr(level slog.Level, plain bool) *slog.Logger {
	if !plain {
		_, err := unix.IoctlGetTermios(2, unix.TCGETS)
		plain = err == nil
	}
	return New(os.Stderr, level, plain)
}

// New returns a logger that writes text or JSON, one line per Write.
func New(w io.Writer, level slog.Level, plain bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cut}
	if plain {
		return slog.New(slog.NewTextHandler(escaping{w}, options))
	}
	return slog.New(slog.NewJSONHandler(escaping{w}, options))
}

// cut bounds a value. A value that is not a string becomes one if it is too long.
func cut(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(text.Cut(v.String(), maxValue))
	case slog.KindAny:
		// fmt recovers from an Error method that panics, for example on a nil pointer.
		s := fmt.Sprint(v.Any())
		if _, ok := v.Any().(error); ok || len(s) > maxValue {
			a.Value = slog.StringValue(text.Cut(s, maxValue))
		}
	}
	return a
}

// An escaping writer escapes what slog leaves unescaped: DEL in text, and in JSON also C1 controls and characters that change the
// direction of text.
type escaping struct{ w io.Writer }

func (e escaping) Write(line []byte) (int, error) {
	if _, err := e.w.Write(text.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
