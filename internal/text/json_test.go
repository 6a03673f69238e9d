package text

import (
	"io"
	"strings"
	"testing"
)

// TestWriteJSON: JSON is escaped for a terminal, and not for HTML.
func TestWriteJSON(t *testing.T) {
	for indent, want := range map[string]string{"": `{"a":"<\u202e>"}` + "\n", "  ": "{\n  \"a\": \"<\\u202e>\"\n}\n"} {
		var b strings.Builder
		if err := WriteJSON(&b, map[string]string{"a": "<\u202e>"}, indent); err != nil || b.String() != want {
			t.Errorf("%q, %v, want %q", b.String(), err, want)
		}
	}
	if err := WriteJSON(io.Discard, func() {}, ""); err == nil {
		t.Error("a function has no JSON")
	}
}
