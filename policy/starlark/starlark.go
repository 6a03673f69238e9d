// Package starlark interprets Starlark: the operator's rules, in this process, and scripts of clients, in a process of
// their own. Both use one dialect: with sets, while, and top-level statements; without recursion, so the depth of calls
// is bounded. No type of the interpreter library leaves this package, and no other package imports the library.
//
// # Rules
//
// A file of rules may deny a request, or lower its limits.
//
//	def decide(request):
//	    if request.runtime == "shell" and request.principal != "user:ada":
//	        return deny("the shell is ada's alone")
//	    return limit(timeout_ms = min(request.timeout_ms, 5000))
//
// Rules see a request's code as a hash and a length, never as text. Besides the universal names of Starlark, allow, deny
// and limit are predeclared. There is no load, clock, file or network, and print discards its output. So the same rules
// and request always give the same verdict, except on a machine that needs longer than MaxTime.
//
// Every failure denies the request, with a reason that says the rules failed: an error, too many steps, a timeout, a
// value that is not a verdict, a raised limit, or a file that cannot be read, that others could have written, or that
// lacks decide. A verdict can only restrict.
//
// Steps and time are bounded. Memory is bounded only by what a source of MaxSource can allocate in MaxSteps, because a
// single operation is not interrupted (repeating a list 10^9 times kills the process). That is acceptable because the
// operator writes the rules; a request cannot add operations.
//
// # Scripts
//
// A script can use read_input() and emit(text) besides the universal names of Starlark, so its output is a function of
// its source and its input. Strings are bytes: input is read, and output emitted, unchanged.
//
// A script can use any amount of resources of the process that runs it: see Run, the program corral-starlark, which is
// meant for a jail. The process ends itself when its time or memory is used up, whatever the library is doing. If it
// cannot report the failure, the Go runtime or the kernel ends it, and Ended derives the failure from that. Exec does the
// same without ending a process.
package starlark

import (
	"errors"
	"strings"
	"time"
	"unicode"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Bounds of rules.
const (
	MaxSource    = 64 << 10    // bytes of a file; nesting that fits into it cannot exhaust the parser's stack
	MaxSteps     = 100_000     // per decision, as the interpreter counts them; a comparison takes about five
	MaxLoadSteps = 1_000_000   // for the top-level statements, which run once
	MaxTime      = time.Second // per decision; only slow machines reach it, since MaxSteps ends endless loops
	MaxReason    = 500         // bytes of a reason that are kept
)

// dialect returns the language options. Recursion stays off: with it the depth of calls would be unbounded.
func dialect() *syntax.FileOptions {
	return &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true}
}

// describe formats an error of the library in one line, with its position if known.
func describe(err error) string {
	at, what := explain(err)
	if at != "" {
		what = at + ": " + what
	}
	return oneLine(what)
}

// explain returns the position of an error of the library, or "", and its message.
func explain(err error) (at, what string) {
	var syntaxErr syntax.Error
	var list resolve.ErrorList
	var evalErr *starlark.EvalError
	switch {
	case errors.As(err, &syntaxErr):
		return syntaxErr.Pos.String(), syntaxErr.Msg
	case errors.As(err, &list) && len(list) > 0:
		return list[0].Pos.String(), list[0].Msg
	case errors.As(err, &evalErr):
		return position(evalErr), evalErr.Msg
	}
	return "", err.Error()
}

// position returns the innermost position in the source, skipping built-in functions.
func position(err *starlark.EvalError) string {
	for i := range err.CallStack {
		frame := err.CallStack.At(i)
		if frame.Pos.Line > 0 {
			return frame.Pos.String()
		}
	}
	return ""
}

// oneLine returns s as text for a reason.
func oneLine(s string) string { return printable(s, MaxReason) }

// printable returns s as one line of valid UTF-8 of at most maxBytes bytes, with control characters replaced by spaces.
// It is not internal/text: a reason is compared with others, and the author of the script reads the message.
func printable(s string, maxBytes int) string {
	const end = "..."
	if len(s) > maxBytes {
		s = s[:maxBytes-len(end)] + end
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if control(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}

// control reports whether r affects the display of text: C0, C1, and bidirectional controls.
func control(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Bidi_Control) }
