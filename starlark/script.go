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
	MaxScript = 256 << 10   // bytes of a source
	MaxInput  = 4 << 20     // bytes of an input, for a script that reads it
	MaxOutput = 1 << 20     // bytes that a script can be allowed to emit
	MaxWall   = time.Minute // that a script can be allowed to take
)

// maxDepth is how deep the tree of a source may be. The parser bounds what is nested in brackets and blocks, and not the
// length of a chain (1+1+1+..., elif after elif, f()()()...): what comes after it calls itself for each link.
const maxDepth = 10_000

// stepsPerMs is more than any machine takes. It ends a script whose clock does not go on.
const stepsPerMs = 1_000_000

// scriptName is what a script is called where it says what is wrong with it.
const scriptName = "script.star"

// Bounds are those of one script.
type Bounds struct {
	Output int           // bytes that are emitted, 1..MaxOutput
	Wall   time.Duration // 1 ms..MaxWall
	Memory int64         // bytes that the program may have; 0 and less leave it to whoever runs it. Exec does not look at it
}

// Exec runs a script. What it emits goes to out, cut at the end of the last character within b.Output; in is read when the
// script asks for its input, up to MaxInput. Nil says that it has ended well.
//
// It returns when the script has ended, or the context has. What one operation of the library does is not interrupted:
// see Run, for a process that ends in time.
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

// panicked is the failure of a panic of the library.
func panicked(p any) *Failure {
	what := fmt.Sprint(p)
	// list(range(1<<60)) is more than the address space has.
	if _, ok := p.(runtime.Error); ok && (strings.Contains(what, "makeslice") || strings.Contains(what, "growslice")) {
		return OutOfMemory()
	}
	return &Failure{Code: CodeEval, Message: printable("the interpreter panicked: "+what, MaxMessage)}
}

// compile parses and resolves a source of which every name is known.
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

// shallow refuses a tree deeper than maxDepth.
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
			return false // and no nil comes for it
		}
		depth++
		return true
	})
	if at.Line > 0 {
		return syntax.Error{Pos: at, Msg: fmt.Sprintf("excessive nesting: more than %d levels", maxDepth)}
	}
	return nil
}

// noLoad is load.
func noLoad(_ *starlark.Thread, _ string) (starlark.StringDict, error) {
	return nil, errors.New("there is nothing to load: a script has its input, and nothing else")
}

// A script is what its two functions share.
type script struct {
	in    io.Reader
	input *string // nil before it is read
	out   io.Writer
	limit int
	left  int // of limit
}

// readInput is read_input() -> str. The string has the bytes of the input as they are.
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

// emit is emit(str). What is beyond the limit ends the script.
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
		return nil, errors.New("emit: nobody takes what is emitted")
	}
	if len(kept) < len(text) {
		return nil, &Failure{Code: CodeOutput, Message: fmt.Sprintf("the script emitted more than %d bytes", s.limit)}
	}
	return starlark.None, nil
}

// failure is an error of the library, or one of ours that came through it.
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

// Frames of a back-trace that are kept.
const (
	outermost   = 10
	innermost   = 30
	maxCallee   = 60 // bytes of the name of a function
	maxLastLine = 500
)

// backtrace is what the library would say of the calls, within bounds.
func backtrace(err *starlark.EvalError, what string) string {
	frames := err.CallStack
	last := "Error"
	if n := len(frames); n > 0 && frames[n-1].Pos.Line == 0 { // a function that is built in
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
