package starlark

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Sources that could use much memory in a few steps. Only ending the process stops them, so TestBombs covers them, and
// the fuzz test skips them.
var (
	wild  = regexp.MustCompile(`[0-9]{4}|(?s:\*.*\*)|<<`)
	loops = regexp.MustCompile(`\b(for|while|range)\b`)
	grows = regexp.MustCompile(`[=+*%]|append|extend|insert|update|setdefault|add|join|replace|format`)
)

// FuzzExec checks that any source and input end without a panic, within the output limit, and with a valid failure, and
// that a second run gives the same result unless it timed out.
func FuzzExec(f *testing.F) {
	for _, source := range sameEachTime {
		if len(source) < 1000 { // long ones are slow to minimize
			f.Add(source, "input\n")
		}
	}
	f.Add("emit(read_input()[::-1])", "ä\xff\x00")
	f.Add("def f(x, *a, **k):\n\tif x: return [y for y in a if y]\n\telif k: pass\n\telse: fail(x)\nf(1, 2)", "")
	f.Add("'{:>3}'.format(1)\n'%s %d %r' % (1, 2, 3)\nr'\\x'\n'''a\nb'''", "")
	f.Fuzz(func(t *testing.T, source, input string) {
		if wild.MatchString(source) || loops.MatchString(source) && grows.MatchString(source) {
			return
		}
		b := Bounds{Output: 100, Wall: time.Millisecond} // bounds the steps, which take up to 20 ms
		once := func() (string, *Failure) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var out strings.Builder
			failure := Exec(ctx, []byte(source), strings.NewReader(input), &out, b)
			return out.String(), failure
		}
		out, failure := once()
		if len(out) > b.Output {
			t.Fatalf("%d bytes", len(out))
		}
		if failure == nil {
			return
		}
		if !failure.sound() || strings.Contains(failure.Message, "panicked") {
			t.Fatalf("%#v", failure)
		}
		if failure.Code == CodeOutput && b.Output-len(out) >= utf8.UTFMax {
			t.Errorf("OUTPUT_LIMIT after %d bytes, limit %d", len(out), b.Output)
		}
		if again, other := once(); failure.Code != CodeTimeout && (again != out || other == nil || *other != *failure) {
			t.Errorf("%q %v\nthen %q %v", out, failure, again, other)
		}
	})
}
