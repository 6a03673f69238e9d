package job

import (
	"strings"
	"testing"
)

func TestCheckImageName(t *testing.T) {
	for name, ok := range map[string]bool{
		"debian": true, "0": true, "debian-12.5_slim": true, "a..b": true, strings.Repeat("a", MaxImageName): true,
		"": false, ".": false, "..": false, ".hidden": false, "-x": false, "_x": false, "Debian": false, "a/b": false,
		"a b": false, "a\x00": false, "ä": false, "a\n": false, strings.Repeat("a", MaxImageName+1): false,
	} {
		if err := CheckImageName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
