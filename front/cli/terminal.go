package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"corral/internal/text"
)

// An Escaper replaces bytes that would control a terminal by escapes such as \u001b, or \xff for an invalid byte.
// Newlines and tabs are kept. It does for a stream of any length, in which a write may end within a character, what
// internal/text does for a string.
type Escaper struct {
	w    *bufio.Writer
	raw  bool   // copies everything unchanged
	held []byte // the beginning of an incomplete character
}

// Write implements io.Writer.
func (e *Escaper) Write(p []byte) (int, error) {
	if e.raw {
		return e.w.Write(p)
	}
	n := len(p)
	p = append(e.held, p...)
	for len(p) > 0 && utf8.FullRune(p) {
		r, size := utf8.DecodeRune(p)
		if err := e.show(r, p[:size]); err != nil {
			return 0, err
		}
		p = p[size:]
	}
	e.held = bytes.Clone(p)
	return n, nil
}

func (e *Escaper) show(r rune, text []byte) (err error) {
	switch {
	case r == utf8.RuneError && len(text) == 1:
		_, err = fmt.Fprintf(e.w, `\x%02x`, text[0])
	case r == '\n' || r == '\t' || strconv.IsPrint(r):
		_, err = e.w.Write(text)
	case r > 0xffff:
		_, err = fmt.Fprintf(e.w, `\U%08x`, r)
	default:
		_, err = fmt.Fprintf(e.w, `\u%04x`, r)
	}
	return err
}

// Flush writes the bytes of an incomplete last character, and what is buffered.
func (e *Escaper) Flush() error {
	for _, b := range e.held {
		if _, err := fmt.Fprintf(e.w, `\x%02x`, b); err != nil {
			return err
		}
	}
	e.held = nil
	return e.w.Flush()
}

// IsTerminal reports whether f is a terminal, which output could control.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// NewEscaper returns a buffered writer to f that escapes control characters if f is a terminal.
func NewEscaper(f *os.File) *Escaper {
	return &Escaper{w: bufio.NewWriterSize(f, 64<<10), raw: !IsTerminal(f)}
}

// WriteJSON writes v as indented JSON.
func WriteJSON(w io.Writer, v any) error { return text.WriteJSON(w, v, "  ") }

// PrintJSON writes v as indented JSON to standard output.
func PrintJSON(v any) error { return WriteJSON(os.Stdout, v) }
