package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/inside"
	"corral/job"
)

// untried lists the steps that are not left out, with the reason.
var untried = map[string]string{
	"session":        "without a terminal it has no visible effect",
	"stdio":          "gives the job its standard streams",
	"landlock-rules": "step landlock fails without it",
	"payload":        "the program cannot start without it",
	"files":          "these jobs have no files",
	"exec":           "the program cannot start without it",
	"repo":           "the job has no working directory without it",
	"common":         "these jobs have none",
	"door":           "these jobs have none; it opens the jail, and protects from nothing",
	"protect":        "it has a table of its own, see TestWithoutProtect",
	"modes":          "it is for jobs that protect something, see TestWithoutProtect",
	"worktrees":      "these jobs have none; it makes empty directories, and protects from nothing that a job does on purpose",
	"terminal":       "these jobs have none",
	"cgroups":        "the supervisor does it if the step is left out",
	"toolchains":     "without it the stub would read its messages as the plan",
	"private-mounts": "the jail's mounts are slaves already, so it has no visible effect",
	"descriptors":    "all descriptors close at exec already, so it has no visible effect",
	"no-new-privs":   "the jail's process 1 has it already, so it has no visible effect",
}

// companions lists steps that fail without another one.
var companions = map[string][]string{
	"private-directories": {"accounts", "home", "tmp-size"},
	// In a shared mount namespace the second job would find what these have mounted for the first one.
	inside.MountNamespace: {"proc", "proc-masks", "proc-sys", "private-directories", "accounts", "home", "tmp-size"},
}

// TestLayers leaves out each step, and each set of steps that prevent an attempt together, and checks that exactly
// the attempts they prevent have another result.
func TestLayers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"), sandboxtest.Landlock)
	for _, skipped := range sets() {
		name := strings.Join(skipped, " ")
		if name == "" {
			name = "complete"
		}
		t.Run(name, func(t *testing.T) { tryAll(t, skipped) })
	}
}

// sets returns the empty set, each step that can be left out, and the layers of each attempt.
func sets() [][]string {
	list := [][]string{nil}
	add := func(set []string) {
		slices.Sort(set)
		set = slices.Compact(set)
		if !slices.ContainsFunc(list, func(s []string) bool { return slices.Equal(s, set) }) {
			list = append(list, set)
		}
	}
	for _, step := range inside.Steps {
		if _, ok := untried[step]; !ok {
			add(append([]string{step}, companions[step]...))
		}
	}
	for _, a := range attempts {
		var set []string
		for _, step := range a.steps() {
			set = append(append(set, step), companions[step]...)
			if slices.Contains(inside.Measures, step) {
				add([]string{step})
			}
		}
		add(set)
	}
	return list
}

// steps returns the attempt's layers on this kernel.
func (a attempt) steps() []string {
	var list []string
	for _, layer := range strings.Fields(a.layers) {
		step, since, _ := strings.Cut(layer, ":")
		if step == "socket-settings" && !hasSocketSettings() {
			continue
		}
		if version, err := strconv.Atoi(since); since == "" || err == nil && sandboxtest.LandlockABI(version)() == nil {
			list = append(list, step)
		}
	}
	return list
}

// hasSocketSettings reports whether each network namespace of this kernel has the setting of step socket-settings.
func hasSocketSettings() (found bool) {
	sandboxtest.OnThread(func() {
		if unix.Unshare(unix.CLONE_NEWNET) == nil {
			_, err := os.Stat("/proc/thread-self/root/proc/sys/net/core/tstamp_allow_data")
			found = err == nil
		}
	})
	return found
}

// skip leaves out steps, by the stub for tests: the one that is shipped cannot.
func skip(t testing.TB, steps []string) func(*Config) {
	return func(c *Config) {
		if len(steps) > 0 {
			c.Programs = withTestStub(t, c.Programs)
		}
		for _, step := range steps {
			c.switches.Skip |= inside.Step(step)
		}
	}
}

// withTestStub returns a directory with the programs of another one, except the stub.
func withTestStub(t testing.TB, programs string) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{
		"corral-init": "corral-init", "corral-layer": "corral-layer", "corral-starlark": "corral-starlark", "corral-stub": "corral-stub-test",
	} {
		if err := copyFile(filepath.Join(programs, from), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tryAll makes every attempt in a jail without some steps.
func tryAll(t *testing.T, skipped []string) {
	f := newFront(t, skip(t, skipped))
	f.leaveTmp(skipped)
	got := f.attempts()
	for _, a := range attempts {
		layers := a.steps()
		if a.layers == "socket-settings" && len(layers) == 0 {
			t.Logf("%s: nothing stops it on this kernel, whose setting is one for the whole host", a.name)
			continue
		}
		open := len(layers) > 0 && !slices.ContainsFunc(layers, func(l string) bool { return !slices.Contains(skipped, l) })
		if red := got[a.name] != a.want; red != open {
			t.Errorf("%s: %s, want %s: %v", a.name, got[a.name], a.want, !open)
		} else if red {
			t.Logf("%s: %s, no longer %s", a.name, got[a.name], a.want)
		}
	}
}

// leaveTmp shows the front's repository outside of every private directory if those are left out: below one it has no mount point.
func (f *front) leaveTmp(skipped []string) {
	f.T.Helper()
	if slices.Contains(skipped, "private-directories") {
		f.Repo = shownAt(f.T, f.Repo, "/mnt", "/mnt/repo")
	}
}

// attempts makes all attempts in one job and returns the result of each.
func (f *front) attempts() map[string]string {
	f.T.Helper()
	var st unix.Stat_t
	if err := unix.Stat(f.Repo, &st); err != nil {
		f.T.Fatal(err)
	}
	spec := f.Spec("/usr/bin/perl", "-e", program())
	spec.Env = append(slices.Clone(environment), fmt.Sprintf("INODE=%d", st.Ino))
	spec.Limits = job.Limits{OpenFiles: 64, Tmp: 1 << 20, TmpInodes: 64, FileSize: 4 << 20}
	d := f.Run(spec)
	got := map[string]string{}
	for line := range strings.Lines(d.Out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if n, err := strconv.Atoi(value); err == nil && name != "Landlock" && name != "no new privileges" && n < 200 && len(value) < 4 {
			value = unix.ErrnoName(unix.Errno(n))
		}
		got[name] = value
	}
	if d.Status != job.Success || len(got) != len(attempts) {
		f.T.Errorf("%d of %d attempts: %+v\n%s", len(got), len(attempts), d.Result, d.Err)
	}
	return got
}

// TestKeyring: each job has a session keyring of its own. The filter refuses keyctl(2), so it is left out here.
func TestKeyring(t *testing.T) {
	const session = -3 // KEY_SPEC_SESSION_KEYRING of keyctl(2)
	ask := fmt.Sprintf("print syscall(%d, 0, %d, 0)", unix.SYS_KEYCTL, session)
	for _, tt := range []struct {
		skipped []string
		shared  bool
	}{{[]string{"seccomp"}, false}, {[]string{"seccomp", "keyring"}, true}} {
		f := newFront(t, skip(t, tt.skipped))
		first, second := f.Run(f.Spec("perl", "-e", ask)).Out, f.Run(f.Spec("perl", "-e", ask)).Out
		if len(first) < 2 || (first == second) != tt.shared {
			t.Errorf("without %q: keyrings %s and %s", tt.skipped, first, second)
		}
	}
}

// shownAt mounts a repository at dir, in a tmpfs on top, in this test's mount namespace.
func shownAt(t testing.TB, repo, top, dir string) string {
	t.Helper()
	if err := os.Mkdir(top, 0o755); err == nil {
		t.Cleanup(func() {
			if err := os.Remove(top); err != nil {
				t.Error(err)
			}
		})
	}
	if err := unix.Mount("test", top, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(top, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(repo, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}
