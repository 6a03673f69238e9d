// Package suites has only tests: of the comparison of test suites of other projects outside and in jails.
package suites

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestMain hides the hostile configuration of the machine of the tests.
func TestMain(m *testing.M) { os.Exit(sandboxtest.WithoutInstallation(m)) }

// TestShort: what Go's own tests of processes, signals and files find is the same in jails as outside. `make soak` runs all suites.
func TestShort(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("setpriv"), sandboxtest.Program("unshare"), sandboxtest.Program("ip"))
	cmd := exec.Command("./run", "--short", "go")
	cmd.Env = append(os.Environ(), "CORRAL_BIN="+filepath.Dir(sandboxtest.Bin(t, "corral")))
	report, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	t.Logf("%s", report)
}

// TestDifferences: the page says why each known difference is there.
func TestDifferences(t *testing.T) {
	table, err := os.ReadFile("differences")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/explanation/isolation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "\n### What a job may not do that your processes may\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			t.Errorf("%q is not a suite, a pattern and a reason", line)
			continue
		}
		if _, err := os.Stat(fields[0]); err != nil {
			t.Error(err)
		}
		if reason := strings.Join(fields[2:], " "); !strings.Contains(rows, "\n| "+reason) {
			t.Errorf("no row of the page begins with %q", reason)
		}
	}
}
