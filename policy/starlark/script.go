package starlark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Bounds of scripts.
const (
	MaxScript = 256 << 10   // bytes of the source
	MaxInput  = 4 << 20     // bytes of the input that a script can read
	MaxOutput = 1 << 20     // bytes, maximum of Bounds.Output
	MaxWall   = time.Minute // maximum of Bounds.Wall
)

// maxDepth is the maximum depth of a syntax tree. The parser bounds the nesting of brackets and blocks, but not the
// length of chains (1+1+1+..., elif after elif, f()()()...), over which later passes recurse.
const maxDepth = 10_000

// stepsPerMs exceeds what any machine executes. It ends a script even if the clock stands still.
const stepsPerMs = 1_000_000

// scriptName is the name of the script in error positions.
const scriptName = "script.star"

// Bounds are the bounds of one script.
type Bounds struct {
	Output int           // maximum number of emitted bytes, 1..MaxOutput
	Wall   time.Duration // timeout, 1 ms..MaxWall
	Memory int64         // bytes of memory for the process; 0 or less means unlimited. Exec ignores it
}

// Exec runs a script. It writes what the script emits to out, truncated after the last whole character within b.Output.
// It reads in when the script calls read_input, up to MaxInput bytes. It returns nil if the script succeeded.
//
// It returns when the script or the context has ended. A single operation of the library is not interrupted: use Run for
// a process that ends in time.
func Exec(ctx context.Context, source []byte, in io.Reader, out io.Writer, b Bounds) (f *Failure) {
	defer func() {
		if p := recover(); p != nil {
			f = panicked(p)
		}
	}()
	s := &script{in: in, out: out, limit: b.Output, left: b.Output}
	predeclared := starlark.StringDict{
		"read_input": starlark.NewBuiltin("read_input", s.readInput),
		"emit":       starlark.NewBuiltin("emit", s.emit),
	}
	program, err := compile(source, predeclared.Has)
	if err != nil {
		return failure(err)
	}
	tooMany := false
	thread := &starlark.Thread{Name: "script", Print: func(*starlark.Thread, string) {}, Load: noLoad}
	thread.SetMaxExecutionSteps(uint64(max(1, b.Wall.Milliseconds())) * stepsPerMs)
	thread.OnMaxSteps = func(t *starlark.Thread) {
		tooMany = true
		t.Cancel("")
	}
	stop := context.AfterFunc(ctx, func() { thread.Cancel("") })
	defer stop()
	_, err = program.Init(thread, predeclared)
	switch {
	case err == nil:
		return nil
	case tooMany, ctx.Err() != nil:
		return TimedOut(b.Wall)
	}
	return failure(err)
}

// panicked converts a panic of the library to a Failure.
func panicked(p any) *Failure {
	what := fmt.Sprint(p)
	// list(range(1<<60)) exceeds the address space
	if _, ok := p.(runtime.Error); ok && (strings.Contains(what, "makeslice") || strings.Contains(what, "growslice")) {
		return OutOfMemory()
	}
	return &Failure{Code: CodeEval, Message: printable("the interpreter panicked: "+what, MaxMessage)}
}

// compile parses a source and resolves all names in it.
func compile(source []byte, predeclared func(string) bool) (*starlark.Program, error) {
	if len(source) > MaxScript {
		return nil, &Failure{Code: CodeRequest, Message: fmt.Sprintf("the source has more than %d bytes", MaxScript)}
	}
	file, err := dialect().Parse(scriptName, source, 0)
	if err != nil {
		return nil, err
	}
	if err := shallow(file); err != nil {
		return nil, err
	}
	return starlark.FileProgram(file, predeclared)
}

// shallow refuses a syntax tree deeper than maxDepth.
func shallow(file *syntax.File) error {
	depth, at := 0, syntax.Position{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		if at.Line > 0 || depth == maxDepth {
			if at.Line == 0 {
				at, _ = n.Span()
			}
			return false // Walk makes no closing call with nil for this node
		}
		depth++
		return true
	})
	if at.Line > 0 {
		return syntax.Error{Pos: at, Msg: fmt.Sprintf("excessive nesting: more than %d levels", maxDepth)}
	}
	return nil
}

// noLoad implements load, which is not available.
func noLoad(_ *starlark.Thread, _ string) (starlark.StringDict, error) {
	return nil, errors.New("load is not available: a script can only use its input")
}

// A script is the state of read_input and emit.
type script struct {
	in    io.Reader
	input *string // nil until it is read
	out   io.Writer
	limit int
	left  int // bytes of limit that are left
}

// readInput implements read_input() -> str. The string has the unchanged bytes of the input.
func (s *script) readInput(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if err := starlark.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	if s.input == nil {
		var text strings.Builder
		n, err := io.Copy(&text, io.LimitReader(s.in, MaxInput+1))
		switch {
		case err != nil:
			return nil, errors.New("read_input: the input cannot be read")
		case n > MaxInput:
			return nil, &Failure{Code: CodeRequest, Message: fmt.Sprintf("the input has more than %d bytes", MaxInput)}
		}
		input := text.String()
		s.input = &input
	}
	return starlark.String(*s.input), nil
}

// emit implements emit(str). Exceeding the limit ends the script.
func (s *script) emit(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var value starlark.Value
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &value); err != nil {
		return nil, err
	}
	text, ok := value.(starlark.String)
	if !ok {
		return nil, fmt.Errorf("emit: got %s, want string: emit(str(x)) emits any value", value.Type())
	}
	kept := whole(string(text), s.left)
	s.left -= len(kept)
	if _, err := io.WriteString(s.out, kept); err != nil {
		return nil, errors.New("emit: the output cannot be written")
	}
	if len(kept) < len(text) {
		return nil, &Failure{Code: CodeOutput, Message: fmt.Sprintf("the script emitted more than %d bytes", s.limit)}
	}
	return starlark.None, nil
}

// failure converts an error of the library, or a *Failure wrapped in one.
func failure(err error) *Failure {
	f := &Failure{Code: CodeEval}
	var own *Failure
	var eval *starlark.EvalError
	at, what := explain(err)
	if errors.As(err, &own) {
		f.Code, what = own.Code, own.Message
	}
	f.Position, f.Message = printable(at, MaxMessage), printable(what, MaxMessage)
	if f.Message == "" { // fail("")
		f.Message = "the script failed"
	}
	if errors.As(err, &eval) {
		f.Backtrace = backtrace(eval, f.Message)
	}
	return f
}

// Bounds of a backtrace: frames that are kept, and bytes.
const (
	outermost   = 10
	innermost   = 30
	maxCallee   = 60 // bytes of the name of a function
	maxLastLine = 500
)

// backtrace formats the calls as the library would, within bounds.
func backtrace(err *starlark.EvalError, what string) string {
	frames := err.CallStack
	last := "Error"
	if n := len(frames); n > 0 && frames[n-1].Pos.Line == 0 { // a built-in function
		last += " in " + printable(frames[n-1].Name, maxCallee)
		frames = frames[:n-1]
	}
	var text strings.Builder
	if len(frames) > 0 {
		text.WriteString("Traceback (most recent call last):\n")
	}
	for i, frame := range frames {
		switch cut := len(frames) - innermost; {
		case i >= outermost && i == cut-1 && cut-outermost > 0:
			fmt.Fprintf(&text, "  ... %d more calls ...\n", cut-outermost)
		case i < outermost || i >= cut:
			fmt.Fprintf(&text, "  %s: in %s\n", frame.Pos, printable(frame.Name, maxCallee))
		}
	}
	return text.String() + last + ": " + printable(what, maxLastLine)
}
