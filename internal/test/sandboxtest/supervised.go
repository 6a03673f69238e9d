package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RequireJails is Require for a test that runs jobs, with further needs.
func RequireJails(t testing.TB, more ...Need) {
	t.Helper()
	Require(t, append([]Need{Root, Cgroups, CgroupKill, UserNamespaces}, more...)...)
}

// Eventually polls until ok returns true. d is the time that this takes at most on an idle machine; the timeout is
// Slow(4*d).
func Eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	d *= 4
	for end := time.Now().Add(Slow(d)); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Slow(d), what)
		}
	}
}

// Leftovers returns the directory of a supervisor's instance and its cgroups in all hierarchies, as far as they exist.
func Leftovers(instance string) []string {
	found, _ := filepath.Glob("/run/corral/instances/" + instance)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if !strings.HasPrefix(after, "cgroup") {
			continue
		}
		pattern := strings.Fields(before)[4]
		for range 5 {
			dirs, _ := filepath.Glob(filepath.Join(pattern, instance))
			found = append(found, dirs...)
			pattern += "/*"
		}
	}
	return found
}
