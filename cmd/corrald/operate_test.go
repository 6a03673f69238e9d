package main

import (
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestOperateCommands: corral ps, kill and drain, as an operator and as users run them.
func TestOperateCommands(t *testing.T) {
	sandboxtest.RequireJails(t)
	const alice, bob = 61234, 61235
	d := serve(t)
	repo := makeDirectory(t, filepath.Join(d.Dir, "repo"), alice, 0o755)
	d.hold(t, alice, repo)
	code, out, errs := d.runs(0, "ps", "--json")
	if code != 0 || !strings.Contains(out, `"uid":61234,"user":"61234"`) || !strings.Contains(out, `"peakMemoryBytes":`) || !strings.Contains(out, `"memoryBytes":`) || strings.Count(out, "\n") != 1 {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}
	_, id, _ := strings.Cut(out, `"job":"`)
	id, _, _ = strings.Cut(id, `"`)
	if code, _, errs := d.runs(bob, "kill", id); code != 125 || !strings.Contains(errs, "no job") {
		t.Errorf("bob's kill: exit code %d, %q", code, errs)
	}
	if code, _, errs := d.runs(alice, "drain"); code != 125 || !strings.Contains(errs, "only root may") {
		t.Errorf("alice's drain: exit code %d, %q", code, errs)
	}
	if code, _, errs := d.runs(0, "drain", "--timeout", "200ms"); code != 1 || !strings.Contains(errs, "1 jobs still run") {
		t.Errorf("drain while a job runs: exit code %d, %q", code, errs)
	}
	if code, _, errs := d.runs(alice, "run", "--repo", repo, "--", "true"); code != 125 || !strings.Contains(errs, "being drained") {
		t.Errorf("a job of a drained supervisor: exit code %d, %q", code, errs)
	}
	if code, out, errs := d.runs(alice, "kill", id); code != 0 || out != "" || errs != "" {
		t.Errorf("alice's kill: exit code %d, %q, %q", code, out, errs)
	}
	if code, out, errs := d.runs(0, "drain"); code != 0 || !strings.HasPrefix(out, "drained") {
		t.Errorf("drain: exit code %d, %q, %q", code, out, errs)
	}
	if code, _, errs := d.runs(0, "drain", "--undo"); code != 0 {
		t.Errorf("drain --undo: exit code %d, %q", code, errs)
	}
	if code, _, errs := d.runs(alice, "run", "--repo", repo, "--", "true"); code != 0 {
		t.Errorf("a job after the drain: exit code %d, %q", code, errs)
	}
}
