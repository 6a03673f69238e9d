// Package lazyregexp has regular expressions that are compiled when they are first used.
//
// A program runs the initializers of all packages that it is linked with, at every start. Compiling an expression takes some
// 10 µs, with counted repetitions such as {16} up to 100 µs: corral-front, which people start for each command, would spend a
// millisecond on expressions, and no command uses more than a few.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// New returns a function that returns the compiled expression, and may be called concurrently. If the expression is malformed,
// each call panics, and so does New in the binary of a test: the test of each package finds what its package declares.
func New(expression string) func() *regexp.Regexp {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	if tested {
		compiled()
	}
	return compiled
}

// List is New for several expressions that are used together. The result must not be changed.
func List(expressions ...string) func() []*regexp.Regexp {
	var all []func() *regexp.Regexp
	for _, expression := range expressions {
		all = append(all, New(expression))
	}
	return sync.OnceValue(func() []*regexp.Regexp {
		var list []*regexp.Regexp
		for _, compiled := range all {
			list = append(list, compiled())
		}
		return list
	})
}

// tested is whether this process is a test.
var tested = len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test")
