package starlark

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// apart is the number of scripts in sameEachTime that also run as processes: those whose results could depend on
// addresses and seeds.
const apart = 13

// sameEachTime are scripts whose results must not vary, with operations that could reveal an address, the seed of a hash
// table, the iteration order of a Go map, a clock, or another script's steps.
var sameEachTime = []string{
	"emit(read_input())",
	"d = {k: hash(k) for k in 'the quick brown fox jumps over the lazy dog'.split()}\nemit(str(d))",
	"s = set(['a%d' % (i * 7919 % 1000) for i in range(1000)])\nemit(','.join([x for x in s]))\nemit(str(s | set(range(99))))",
	"d = {len: 1, emit: 2, (lambda: 1): 3, None: 4, 1.5: 5, (1, 'x'): 6, True: 7}\nemit(str(d) + repr(list(d.items())))",
	"emit(str(sorted(['b', 'a', 'B', 'A'], key = lambda s: s.lower())))",
	"emit(repr([len, emit, ''.join, [].append, lambda: 1]))\nemit(str(dir('') + dir({}) + dir([])))",
	"def f(**kw): return kw\nemit(str(f(z = 1, y = 2, x = 3)))\nemit(str(dict([('b', 1), ('a', 2)], c = 3)))",
	"emit(str(1 << 200) + str(1e100) + str(7.0 / 3) + '%g %e' % (1.0 / 3, 2.0))",
	"ab1 = 1\nab2 = 2\nab3 = 3\ndef f(ab4, ab5): return ab\nf(1, 2)", // the suggested name
	"''.joni('x')",
	"{}.itmes()",
	"def f(n): return 1 // n\n[f(n) for n in [2, 1, 0]]",
	"x = {}\nfor i in range(100): x[i] = i\nfor i in x: x.pop(i)",
	"def f(a, b, c = 1): pass\nf(d = 1, e = 2)",
	"def f(a, b, c): pass\nf()",
	"{[]: 1}",
	"zip(1)",
	"undefined1\nundefined2\nundefined3",
	"x = (",
	"fail('because', {'b': 1, 'a': 2})",
	"load('x', 'y')",
	"for i in range(100000): emit(str(i) * 20)",
	"emit('ä' * 100000)",
	"[0] * (1 << 62)",
	"x = 1" + strings.Repeat("+1", 10_100),
	"list(range(1 << 60))",
}

// TestScripts_deterministic checks that the same source and input give the same result in each of a hundred runs in this
// process. Starlark guarantees it: "Starlark execution is deterministic: all functions and operators in the core language
// produce the same execution each time the program is run; there are no sources of random numbers, clocks, or unspecified
// iterators" (doc/spec.md of go.starlark.net, Overview). Dictionaries and sets are iterated in insertion order (ibid.,
// Dictionaries and Sets). The test extends this to read_input and emit.
func TestScripts_deterministic(t *testing.T) {
	for _, source := range sameEachTime {
		same(t, source, func() string {
			out, f := exec(t, source, "input\n", Bounds{Output: 64 << 10, Wall: MaxWall})
			return fmt.Sprintf("%q %#v", out, f)
		})
	}
}

// TestProgram_deterministic checks the same for runs in separate processes, which differ in addresses and seeds.
func TestProgram_deterministic(t *testing.T) {
	b := Bounds{Output: 64 << 10, Wall: MaxWall, Memory: 256 << 20}
	for _, source := range append([]string{"[0] * 1000000000"}, sameEachTime[:apart]...) {
		same(t, source, func() string {
			got := start(t, source, "input\n", b)
			return fmt.Sprintf("%q %#v", got.stdout, Ended(got.code, []byte(got.stderr)))
		})
	}
	b.Wall = 5 * time.Millisecond
	same(t, "while True: pass", func() string {
		got := start(t, "while True: pass", "", b)
		return fmt.Sprintf("%q %#v", got.stdout, Ended(got.code, []byte(got.stderr)))
	})
}

// same checks that a hundred calls of once return the same result.
func same(t *testing.T, source string, once func() string) {
	t.Helper()
	first := once()
	for range 99 {
		if got := once(); got != first {
			t.Errorf("%.200s\nfirst %.500s\nthen  %.500s", source, first, got)
			return
		}
	}
}
