package jsontext

import (
	"io"
	"strings"
	"testing"
)

// TestWrite: JSON is escaped for a terminal, and not for HTML.
func TestWrite(t *testing.T) {
	for indent, want := range map[string]string{"": `{"a":"<\u202e>"}` + "\n", "  ": "{\n  \"a\": \"<\\u202e>\"\n}\n"} {
		var b strings.Builder
		if err := Write(&b, map[string]string{"a": "<\u202e>"}, indent); err != nil || b.String() != want {
			t.Errorf("%q, %v, want %q", b.String(), err, want)
		}
	}
	if err := Write(io.Discard, func() {}, ""); err == nil {
		t.Error("a function has no JSON")
	}
}
