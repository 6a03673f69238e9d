package stream

import (
	"strings"
	"testing"
)

// TestParseDigest: a digest is read as it is written, also in upper case; nothing else is read, and no zero digest.
func TestParseDigest(t *testing.T) {
	var d Digest
	if d.String() != "" {
		t.Errorf("the zero digest is %q, want none", d)
	}
	for i := range d {
		d[i] = byte(i + 1)
	}
	text := d.String()
	for _, right := range []string{text, strings.ToUpper(text)} {
		if got, err := ParseDigest(right); err != nil || got != d {
			t.Errorf("%q: %v, %v", right, got, err)
		}
	}
	for _, wrong := range []string{"", "x", text[1:], text + "0", strings.Repeat("g", len(text)), strings.Repeat("0", len(text))} {
		if got, err := ParseDigest(wrong); err == nil {
			t.Errorf("%q is read as %v", wrong, got)
		}
	}
}
