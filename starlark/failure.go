package starlark

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The codes of a Failure.
const (
	CodeTimeout = "TIMEOUT"         // it did not end in time
	CodeOutput  = "OUTPUT_LIMIT"    // it emitted more than it may
	CodeEval    = "EVAL_ERROR"      // it is no Starlark, or went wrong
	CodeMemory  = "MEMORY_LIMIT"    // it wanted more memory than it may have
	CodeRequest = "INVALID_REQUEST" // what was asked for is beyond a bound

	// CodeInternal is that of Ended for an end that no script brings about. No program writes it.
	CodeInternal = "INTERNAL"
)

// Bounds of a Failure, in bytes.
const (
	MaxMessage   = 2000     // of a message, and of a position
	MaxBacktrace = 8000     // of a back-trace
	maxFailure   = 64 << 10 // of one on standard error, which the others fit in however they are escaped
)

// A Failure is why a script has not ended well. It is the same each time for the same script and input, but for what a
// script that is near its limit of time or memory meets first.
type Failure struct {
	Code      string // one of the codes
	Message   string // one line, for whoever wrote the script
	Position  string // where in the script, as in "script.star:3:5"; "" where that is not known
	Backtrace string // the calls that led there, outermost first; "" for what is wrong before anything is called
	// Died says that the program did not come to write the failure itself. What it was about to write to standard output
	// is lost then, so that how much is there is a matter of luck.
	Died bool
}

// Error is the failure in one line.
func (f *Failure) Error() string {
	if f.Position == "" {
		return f.Code + ": " + f.Message
	}
	return f.Code + ": " + f.Position + ": " + f.Message
}

// Details are what a reply has beside code and message. They are the caller's to add to, and empty if there are none.
func (f *Failure) Details() map[string]any {
	d := map[string]any{}
	if f.Position != "" {
		d["position"] = f.Position
	}
	if f.Backtrace != "" {
		d["backtrace"] = f.Backtrace
	}
	return d
}

// TimedOut is the failure of a script that did not end within wall, whoever noticed.
func TimedOut(wall time.Duration) *Failure {
	return &Failure{Code: CodeTimeout, Message: fmt.Sprintf("the script did not end within %d ms", wall.Milliseconds())}
}

// OutOfMemory is the failure of a script that wanted more memory than it may have, whoever noticed.
func OutOfMemory() *Failure {
	return &Failure{Code: CodeMemory, Message: "the script needed more memory than it may have"}
}

// A message is a Failure as standard error has it.
type message struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Details details `json:"details,omitzero"`
}

type details struct {
	Position  string `json:"position,omitempty"`
	Backtrace string `json:"backtrace,omitempty"`
}

// write writes f as DecodeFailure reads it.
func (f *Failure) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // it is "<toplevel>" that a person reads
	return e.Encode(message{f.Code, f.Message, details{f.Position, f.Backtrace}})
}

// DecodeFailure reads what the program wrote to standard error: the last line, for the library has a word to say when it is
// refused the address space that it would like. A job wrote it, so that anything but exactly one failure within its bounds
// is none.
func DecodeFailure(stderr []byte) (*Failure, bool) {
	line := bytes.TrimRight(stderr, "\n")
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	if len(line) > maxFailure || !utf8.Valid(line) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var m message
	if d.Decode(&m) != nil {
		return nil, false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	f := &Failure{Code: m.Code, Message: m.Message, Position: m.Details.Position, Backtrace: m.Details.Backtrace}
	return f, f.sound()
}

// sound reports whether f is one that the program writes.
func (f *Failure) sound() bool {
	codes := []string{CodeTimeout, CodeOutput, CodeEval, CodeMemory, CodeRequest}
	return slices.Contains(codes, f.Code) && f.Message != "" &&
		f.Message == printable(f.Message, MaxMessage) && f.Position == printable(f.Position, MaxMessage) &&
		len(f.Backtrace) <= MaxBacktrace && !strings.ContainsFunc(strings.ReplaceAll(f.Backtrace, "\n", ""), control)
}
