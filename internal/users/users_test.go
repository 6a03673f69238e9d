package users

import "testing"

// TestParse: a user is known by name or number.
func TestParse(t *testing.T) {
	for s, want := range map[string]uint32{"root": 0, "0": 0, "4294967294": 1<<32 - 2} {
		if got, err := Parse(s); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "4294967296", "no such user"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// TestNames: a user without a name has the number.
func TestNames(t *testing.T) {
	var n Names
	for range 2 { // looked up, and remembered
		if got := n.Of(0) + " " + n.Of(1<<32-2); got != "root 4294967294" {
			t.Errorf("got %s", got)
		}
	}
}
