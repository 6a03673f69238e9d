package cli

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// TestEscaper checks that the result does not depend on how the input is split into writes.
func TestEscaper(t *testing.T) {
	in := "plain\ttab\n\x1b[2J\u009b1m \x00\x7f\u202e\U000e0001 é€ \xff\xe2\x82"
	want := "plain\ttab\n" + `\u001b[2J\u009b1m \u0000\u007f\u202e\U000e0001` + " é€ " + `\xff\xe2\x82`
	for step := 1; step <= len(in); step++ {
		var b strings.Builder
		e := &Escaper{w: bufio.NewWriter(&b)}
		for rest := in; rest != ""; {
			n := min(step, len(rest))
			if _, err := io.WriteString(e, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := e.Flush(); err != nil || b.String() != want {
			t.Fatalf("in steps of %d: %q", step, b.String())
		}
	}
	var b strings.Builder
	e := &Escaper{w: bufio.NewWriter(&b), raw: true}
	if _, err := io.WriteString(e, in); err != nil || e.Flush() != nil || b.String() != in {
		t.Errorf("raw: %q, %v", b.String(), err)
	}
}
