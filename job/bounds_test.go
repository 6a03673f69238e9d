package job

import (
	"strings"
	"testing"
)

// TestBounds: only paths in the repository are accepted, each in one form, and the repository itself only to be read-only.
func TestBounds(t *testing.T) {
	var b Bounds
	for n, path := range []string{"a", "a b/ü", ".git"} {
		b.Add("orh"[n], path)
	}
	b.Add(BoundReadOnly, ".")
	for bounds, want := range map[Bounds]int{
		"": 0, b: 4, "pa\x00": 1, Bounds("r" + strings.Repeat("x", MaxBounds-2) + "\x00"): 1,
		"ra": -1, "r\x00": -1, "\x00": -1, "ra\x00\x00": -1, "xa\x00": -1, "wa\x00": -1, "Ra\x00": -1, "r/a\x00": -1, "r..\x00": -1, "ra/../..\x00": -1,
		"o.\x00": -1, "p.\x00": -1, "h.\x00": -1, "oa/..\x00": -1, "o./\x00": -1, "oa/\x00": -1, "o./a\x00": -1, "oa//b\x00": -1,
		Bounds("r" + strings.Repeat("x", MaxBounds-1) + "\x00"): -1,
	} {
		if n, ok := bounds.Count(); ok != (want >= 0) || ok && n != want {
			t.Errorf("%.20q: %d, %v", bounds, n, ok)
		}
	}
}
