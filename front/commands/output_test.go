package commands

import (
	"math"
	"testing"
)

// TestParseLines checks valid and invalid line ranges.
func TestParseLines(t *testing.T) {
	for in, want := range map[string][2]int64{
		"1": {1, 1}, "10-20": {10, 20}, "7-7": {7, 7}, "3-": {3, math.MaxInt64},
		"": {}, "0": {}, "-5": {}, "5-4": {}, "a": {}, "1-b": {}, "1-2-3": {}, "99999999999999999999": {}, " 1": {},
	} {
		r, err := parseLines(in)
		if (err == nil) != (want[0] > 0) || err == nil && (r.Start != want[0] || r.End != want[1]) {
			t.Errorf("%q: %+v, %v", in, r, err)
		}
	}
}
