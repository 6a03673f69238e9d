package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestLogOfHostileNames: names of users' directories are escaped in the diagnostic log, so that they cannot control the
// terminal of its reader.
func TestLogOfHostileNames(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	const uid = 4321
	d := serve(t)
	repo := makeDirectory(t, filepath.Join(d.Dir, "gnp\u202e\u009b2J\x7f\u2066\U000e0001.exe"), uid, 0o755)
	if code, _, errs := d.runs(uid, "run", "--repo", repo, "--", "/bin/true"); code != 0 {
		t.Fatalf("%d, %q", code, errs)
	}
	var built []string
	for line := range strings.Lines(d.Log()) {
		if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("%q", line)
		}
		var of struct{ Msg, Repo string }
		if err := json.Unmarshal([]byte(line), &of); err == nil && of.Msg == "jail built" {
			built = append(built, of.Repo)
		}
	}
	if len(built) != 1 || built[0] != repo {
		t.Errorf("jails of %q were built, want %q", built, repo)
	}
}
