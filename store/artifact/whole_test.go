package artifact

import (
	"strings"
	"sync/atomic"
	"testing"
)

// TestWhole: both streams are shown completely up to the common maximum, and not a byte beyond it.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		name           string
		stdout, stderr string
		limit          int64
		over           bool
	}{
		{"nothing", "", "", 1, false},
		{"not requested", "x", "y", 0, false},
		{"exactly", strings.Repeat("x\n", 500_000), "12345", 1_000_005, false},
		{"one more", strings.Repeat("x\n", 500_000), "123456", 1_000_005, true},
		{"one stream alone", "", strings.Repeat("x", 11), 10, true},
		{"bytes", "\x00\xff\r\n", "", 4, false},
	} {
		var calls atomic.Int32
		begin := mine()
		begin.View = View{Whole: tt.limit, Over: func() { calls.Add(1) }}
		c := put(t, nil, begin, tt.stdout, tt.stderr).Captured()
		if c.Over != tt.over || (calls.Load() == 1) != tt.over {
			t.Errorf("%s: over %t, Over called %d times", tt.name, c.Over, calls.Load())
		}
		if tt.limit > 0 && !tt.over && (c.Stdout.Whole != tt.stdout || c.Stderr.Whole != tt.stderr) || tt.limit == 0 && c.Stdout.Whole != "" {
			t.Errorf("%s: %.20q, %.20q", tt.name, c.Stdout.Whole, c.Stderr.Whole)
		}
		if n := int64(len(c.Stdout.Whole) + len(c.Stderr.Whole)); n > tt.limit {
			t.Errorf("%s: %d bytes kept", tt.name, n)
		}
	}
	begin := mine()
	begin.View.Whole = 1 << 20
	if c := put(t, nil, begin, "key "+akia+"\n", "").Captured(); c.Stdout.Whole != "key [REDACTED:aws-key]\n" {
		t.Errorf("%q", c.Stdout.Whole)
	}
}
