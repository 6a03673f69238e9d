package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/front/doctor"
	"corral/internal/test/sandboxtest"
	"corral/policy/runtimes"
)

// TestRuntimes checks that installed runtimes run code, and that others are reported with what to install.
func TestRuntimes(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups, sandboxtest.CgroupKill, sandboxtest.UserNamespaces)
	hidden := map[string]bool{}
	if !sandboxtest.Soak() { // each of these takes seconds; and some should be missing
		for _, name := range []string{"kotlin", "rust", "csharp", "elixir", "java", "go", "typescript"} {
			hidden[name] = hide(t, name)
		}
	}
	var stdout, stderr strings.Builder
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), "doctor", "--runtimes", "--json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	err := cmd.Run()
	var r doctor.Runtimes
	if bad := json.Unmarshal([]byte(stdout.String()), &r); err != nil || bad != nil || len(r.Runtimes) != len(runtimes.Runtimes()) {
		t.Fatalf("%v, %v: %s%s", err, bad, stdout.String(), stderr.String())
	}
	for _, one := range r.Runtimes {
		switch {
		case hidden[one.Name] && (one.Program != "" || one.Remedy == ""):
			t.Errorf("hidden, and not missing: %+v", one)
		case one.Program == "" && (one.Problem == "" || one.Remedy == ""), one.Program != "" && one.Problem != "":
			t.Errorf("%+v", one)
		case one.Name == "shell" && (one.Program == "" || one.Version == "" || one.Start < 0):
			t.Errorf("%+v", one)
		}
	}
}

// hide mounts over the programs of a runtime in the private mount namespace of this process and its children. It reports
// whether there was one.
func hide(t *testing.T, runtime string) bool {
	t.Helper()
	for n := range 10 { // a runtime may have several programs
		c, missing := runtimes.Find(runtimes.Places{}).Choose(runtime, "", nil)
		if missing != "" {
			return n > 0
		}
		if err := unix.Mount("/dev/null", c.Path, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("%s: %v", c.Path, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(c.Path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	t.Fatalf("%s is still found after hiding it repeatedly", runtime)
	return false
}
