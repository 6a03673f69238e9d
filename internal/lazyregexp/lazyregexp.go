// Package lazyregexp has regular expressions that are compiled when they are first used.
//
// A program runs the initializers of all packages that it is linked with, at every start. Compiling an expression takes some
// 10 µs, with counted repetitions such as {16} up to 100 µs: corral-front, which people start for each command, would spend a
// millisecond on expressions, and no command uses more than a few.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression, and may be called concurrently. If the expression is malformed,
// each call panics.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// List is New for several expressions that are used together. The result must not be changed.
func List(expressions ...string) func() []*regexp.Regexp {
	return sync.OnceValue(func() []*regexp.Regexp {
		all := make([]*regexp.Regexp, len(expressions))
		for n, expression := range expressions {
			all[n] = regexp.MustCompile(expression)
		}
		return all
	})
}
