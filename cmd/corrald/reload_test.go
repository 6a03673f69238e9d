package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestReloadCommand: corral reload and SIGHUP make a running corrald read its files again. A faulty file changes nothing and
// is reported with key and line. A user cannot reload.
func TestReloadCommand(t *testing.T) {
	sandboxtest.RequireJails(t)
	const alice = 61234
	dir := sandboxtest.OpenDir(t)
	first, second := makeDirectory(t, filepath.Join(dir, "first"), alice, 0o755), makeDirectory(t, filepath.Join(dir, "second"), alice, 0o755)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("version: 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("repos:\n  - path: " + first + "\n")
	d := serve(t, "--config", file)
	works := func(repo string) bool {
		code, _, _ := d.runs(alice, "run", "--repo", repo, "--", "true")
		return code == 0
	}
	d.hold(t, alice, first)
	if !works(first) || works(second) {
		t.Fatal("the first configuration does not apply")
	}

	write("max_jobs: 50\nmax_jails: many\n")
	if code, out, errs := d.runs(0, "reload"); code != 125 || out != "" || !strings.Contains(errs, "not reloaded: "+file+":3") || !strings.Contains(errs, "max_jails") {
		t.Errorf("a faulty file: exit code %d, %q, %q", code, out, errs)
	}
	if !works(first) || works(second) {
		t.Error("a faulty file changed what is served")
	}

	write("repos:\n  - path: " + second + "\nwarm_slots: 3\n")
	if code, _, errs := d.runs(alice, "reload"); code != 125 || !strings.Contains(errs, "only root may") || works(second) {
		t.Errorf("a user: exit code %d, %q", code, errs)
	}
	if code, out, errs := d.runs(0, "reload"); code != 0 || errs != "" || out != "warm_slots was changed: needs a restart of the supervisor\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if works(first) || !works(second) {
		t.Error("the new configuration does not apply")
	}

	// corral network reloads, too.
	write("repos:\n  - path: " + second + "\nwarm_slots: 4\n")
	out, err := exec.Command(sandboxtest.Bin(t, "corral-front"), "network", "allow", "npm", "--all", "--config", file, "--supervisor", d.Socket).CombinedOutput()
	if want := "corral: note: warm_slots was changed: needs a restart of the supervisor\n" + file + " was changed\n"; err != nil || string(out) != want {
		t.Errorf("%v, %q", err, out)
	}

	write("repos:\n  - path: " + first + "\n")
	if err := unix.Kill(d.PID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Settled(t, func() string {
		if !works(first) || works(second) {
			return "SIGHUP did not make it read its configuration"
		}
		return ""
	})
}
