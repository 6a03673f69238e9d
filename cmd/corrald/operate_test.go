package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestMaximumOfJobs: a user with as many jobs as there may be sees them, ends them, and learns why there are no more.
func TestMaximumOfJobs(t *testing.T) {
	sandboxtest.RequireJails(t)
	const alice, most = 61234, 2
	s := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Config: fmt.Sprintf("max_jobs_per_user: %d\n", most), Everyone: true})
	d := &server{s, filepath.Join(s.Dir, "corral")}
	if err := sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), d.exe); err != nil {
		t.Fatal(err)
	}
	repo := makeDirectory(t, filepath.Join(d.Dir, "repo"), alice, 0o755)
	for range most {
		d.hold(t, alice, repo)
	}
	for range 3 { // a refused job takes no room
		code, out, errs := d.runs(alice, "run", "--repo", repo, "--", "true")
		if code != 125 || out != "" || !strings.Contains(errs, "maximum per user is 2 (max_jobs_per_user)") || strings.Contains(errs, "lost") {
			t.Errorf("a job too many: exit code %d, %q, %q", code, out, errs)
		}
	}
	session := func(args ...string) (string, error) {
		cmd := d.as(alice, "session")
		cmd.Args = append([]string{d.exe, "session", args[0], "--supervisor", d.Socket}, args[1:]...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := session("open", "--repo", repo); err == nil || !strings.Contains(out, "max_jobs_per_user") {
		t.Errorf("a session: %v, %q", err, out)
	}
	if out, err := session("list"); err != nil {
		t.Errorf("the list of sessions: %v, %q", err, out)
	}
	code, out, errs := d.runs(alice, "ps", "--json")
	if code != 0 || strings.Count(out, "\n") != most {
		t.Fatalf("ps: exit code %d, %q, %q", code, out, errs)
	}
	_, id, _ := strings.Cut(out, `"job":"`)
	id, _, _ = strings.Cut(id, `"`)
	if code, _, errs := d.runs(alice, "kill", id); code != 0 {
		t.Errorf("kill: exit code %d, %q", code, errs)
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), "a job after one was ended", func() bool {
		code, _, errs = d.runs(alice, "run", "--repo", repo, "--", "true")
		return code == 0
	})
}
