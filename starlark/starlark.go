// Package starlark interprets Starlark: the operator's rules, in this process, and the scripts of anybody, in a process of
// their own. Both are written in one dialect: with sets, while, and statements at the top; without recursion, so that the
// depth of calls has a bound. No type of the library leaves this package, and no other imports it.
//
// # Rules
//
// A file may deny a request, or lower its limits.
//
//	def decide(request):
//	    if request.runtime == "shell" and request.principal != "user:ada":
//	        return deny("the shell is ada's alone")
//	    return limit(timeout_ms = min(request.timeout_ms, 5000))
//
// They see a request's code as a hash and a length, never as text. What is predeclared is allow, deny and limit, on top of
// what every Starlark has; there is no load, no clock, no file and no network, and print goes nowhere. So the same rules
// and request give the same verdict, always, but for a machine that takes longer than MaxTime.
//
// Whatever goes wrong denies, with a reason that says the rules failed: an error, too many steps, too much time, another
// value than a verdict, a limit that would be raised, a file that cannot be read, that others could have written or that
// has no decide. A verdict can only narrow.
//
// Steps and time are bounded. Memory is not, beyond what a source of MaxSource can ask for in MaxSteps: what one operation
// makes is not interrupted (a list repeated a thousand million times ends the process). That is between the operator and
// their rules; a request brings no operations of its own.
//
// # Scripts
//
// A script has read_input() and emit(text) on top of what every Starlark has, and nothing else: what it emits is a function
// of its source and its input. Strings are bytes: those of the input come as they are, and are emitted as they are.
//
// What a script may do to the process that runs it has no bound but that process: see Run, which is the program
// corral-starlark, for a jail. It ends itself when its time or its memory is up, whatever the library is doing; what it
// does not get to say, the Go runtime or the kernel ends, and Ended tells what that means. Exec is the same without a
// process to end.
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
	MaxSource    = 64 << 10    // bytes of a file; deeper nesting than fits in it does not exhaust the parser's stack
	MaxSteps     = 100_000     // of one decision, as the interpreter counts them; a comparison takes about five
	MaxLoadSteps = 1_000_000   // of what stands outside of functions, once
	MaxTime      = time.Second // of one decision; it is for the slowest of machines, for steps end what does not end
	MaxReason    = 500         // bytes of a reason that are kept
)

// dialect is what the rules are written in. Recursion stays off: with it the depth of calls would have no bound.
func dialect() *syntax.FileOptions {
	return &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true}
}

// describe is an error of the library in one line, with the place where there is one.
func describe(err error) string {
	at, what := explain(err)
	if at != "" {
		what = at + ": " + what
	}
	return oneLine(what)
}

// explain says where an error of the library was, "" for an unknown place, and what it is.
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
		return place(evalErr), evalErr.Msg
	}
	return "", err.Error()
}

// place is where the source was, not a function that is built in.
func place(err *starlark.EvalError) string {
	for i := range err.CallStack {
		frame := err.CallStack.At(i)
		if frame.Pos.Line > 0 {
			return frame.Pos.String()
		}
	}
	return ""
}

// oneLine is text as a reason may be.
func oneLine(s string) string { return printable(s, MaxReason) }

// printable is text in one line of UTF-8, of at most so many bytes, with a space in place of each control character:
// a reason is compared with others, and a message is read by who wrote the script. So this is not internal/text's escaping.
func printable(s string, most int) string {
	const end = "..."
	if len(s) > most {
		s = s[:most-len(end)] + end
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if control(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}

// control says whether a character acts on what shows it: C0, C1, and what turns the direction of text around.
func control(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Bidi_Control) }
