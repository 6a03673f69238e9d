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

// Codes of a Failure.
const (
	CodeTimeout = "TIMEOUT"         // did not end within its timeout
	CodeOutput  = "OUTPUT_LIMIT"    // emitted more than its limit
	CodeEval    = "EVAL_ERROR"      // a syntax error or a runtime error
	CodeMemory  = "MEMORY_LIMIT"    // needed more memory than its limit
	CodeRequest = "INVALID_REQUEST" // the source or the input is too large

	// CodeInternal is returned by Ended for an end that no script can cause. The program never writes it.
	CodeInternal = "INTERNAL"
)

// Bounds of a Failure, in bytes.
const (
	MaxMessage   = 2000     // of a message, and of a position
	MaxBacktrace = 8000     // of a backtrace
	maxFailure   = 64 << 10 // of the JSON on standard error; the largest failure fits, however much of it is escaped
)

// A Failure is the reason why a script failed. It is the same each time for the same script and input, except for a
// script that is close to two of its limits, where the order in which it reaches them may vary.
type Failure struct {
	Code      string // one of the codes
	Message   string // one line, for the author of the script
	Position  string // position in the script, for example "script.star:3:5"; "" if unknown
	Backtrace string // calls that led to the failure, outermost first; "" if no code was running
	// Died reports that the program ended before it could write the failure. What it had emitted was written before.
	Died bool
}

// Error returns the failure in one line.
func (f *Failure) Error() string {
	if f.Position == "" {
		return f.Code + ": " + f.Message
	}
	return f.Code + ": " + f.Position + ": " + f.Message
}

// Details returns the fields of a reply in addition to code and message. The map is never nil, and the caller may add to
// it.
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

// TimedOut returns the failure of a script that did not end within wall.
func TimedOut(wall time.Duration) *Failure {
	return &Failure{Code: CodeTimeout, Message: fmt.Sprintf("the script did not end within %d ms", wall.Milliseconds())}
}

// OutOfMemory returns the failure of a script that exceeded its memory limit.
func OutOfMemory() *Failure {
	return &Failure{Code: CodeMemory, Message: "the script needed more memory than it may have"}
}

// A message is the JSON form of a Failure on standard error.
type message struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Details details `json:"details,omitzero"`
}

type details struct {
	Position  string `json:"position,omitempty"`
	Backtrace string `json:"backtrace,omitempty"`
}

// write writes f in the form that DecodeFailure reads.
func (f *Failure) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // keeps "<toplevel>" readable
	return e.Encode(message{f.Code, f.Message, details{f.Position, f.Backtrace}})
}

// DecodeFailure reads the failure that the program wrote to standard error. It is the last line, since the runtime may
// print warnings before it, for example about its address space. stderr is untrusted: anything but exactly one failure
// within its bounds is rejected.
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

// sound reports whether f is a failure that the program could have written.
func (f *Failure) sound() bool {
	codes := []string{CodeTimeout, CodeOutput, CodeEval, CodeMemory, CodeRequest}
	return slices.Contains(codes, f.Code) && f.Message != "" &&
		f.Message == printable(f.Message, MaxMessage) && f.Position == printable(f.Position, MaxMessage) &&
		len(f.Backtrace) <= MaxBacktrace && !strings.ContainsFunc(strings.ReplaceAll(f.Backtrace, "\n", ""), control)
}
