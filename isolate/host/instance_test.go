package host

import (
	"strings"
	"testing"
)

func TestCheckInstance(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "run-12": true, strings.Repeat("a", maxInstance): true,
		strings.Repeat("a", maxInstance+1): false, "": false, "-a": false, "A": false, "a/b": false, "a\n": false, "init": false,
	} {
		if err := CheckInstance(name); (err == nil) != valid {
			t.Errorf("%q: %v, want valid %t", name, err, valid)
		}
	}
}
