package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A recorder is a testing.TB that records how a test function ends.
type recorder struct {
	testing.TB
	ended string // "skip: why", "fatal: why"
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) {
	r.ended = "skip: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.ended = "fatal: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs f like a test function and returns how it ended.
func record(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.ended
}

func TestRequire(t *testing.T) {
	here := func() error { return nil }
	absent := func() error { return errors.New("no moon") }
	elsewhere := func() error { return otherMachine("no moon here") }
	tests := []struct {
		name, env string
		needs     []Need
		want      string
	}{
		{"nothing", "1", nil, ""},
		{"all there", "1", []Need{here, here}, ""},
		{"skipped", "", []Need{here, absent}, "skip: no moon"},
		{"skipped with 0", "0", []Need{absent}, "skip: no moon"},
		{"required", "1", []Need{here, absent}, "fatal: unmet need with CORRAL_REQUIRE=1: no moon"},
		{"for another machine", "1", []Need{elsewhere}, "skip: no moon here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CORRAL_REQUIRE", tt.env)
			if got := record(t, func(tb testing.TB) { Require(tb, tt.needs...) }); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLacks(t *testing.T) {
	t.Setenv("CORRAL_REQUIRE", "1")
	t.Setenv("CORRAL_LACKS", "no-such-program sh")
	for program, want := range map[string]string{"sh": "", "no-such-program": "skip: ", "no-such-either": "fatal: "} {
		got := record(t, func(tb testing.TB) { Require(tb, Program(program)) })
		if (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", program, got, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	t.Setenv("CORRAL_TEST_PHASE", "")
	for _, tt := range []struct {
		name string
		need Need
		want string // part of the reason, "" for none
	}{
		{"a program", Program("sh"), ""},
		{"no program", Program("no-such-program"), "no-such-program"},
		{"an old kernel", Kernel(3, 10), ""},
		{"a kernel to come", Kernel(1000, 0), "Linux 1000.0"},
		{"a file system", FileSystem("proc"), ""},
		{"no file system", FileSystem("nosuchfs"), "nosuchfs"},
		{"Landlock to come", LandlockABI(1 << 20), "Landlock"},
	} {
		if err := tt.need(); (tt.want == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if CgroupV2() == nil && CgroupV1() == nil {
		t.Error("both cgroup versions hold the controllers")
	}
	// The results depend on the machine, so only check that the needs can be evaluated.
	for name, need := range map[string]Need{
		"Root": Root, "Cgroups": Cgroups, "CgroupV1": CgroupV1, "CgroupV2": CgroupV2, "CgroupKill": CgroupKill,
		"UserNamespaces": UserNamespaces, "Landlock": Landlock,
	} {
		t.Logf("%s: %v", name, need())
	}
}

func TestScale(t *testing.T) {
	for _, tt := range []struct {
		soak, slow string
		n, want    int
	}{
		{"1", "", 100, 100},
		{"1", "20", 100, 5},
		{"1", "20", 7, 1},
		{"1", "0", 7, 7},
		{"1", "-3", 7, 7},
		{"1", "x", 7, 7},
		{"1", "2", 0, 1},
		{"", "", 400, 400 / testShare},
		{"", "", 2, 1},
		{"0", "4", 400, 400 / testShare / 4},
	} {
		t.Setenv("CORRAL_TEST_SOAK", tt.soak)
		t.Setenv("CORRAL_TEST_SLOW", tt.slow)
		want := tt.want
		if testing.Short() && tt.soak != "1" {
			want = max(1, tt.n/(shortShare*slowness()))
		}
		if got := Scale(tt.n); got != want {
			t.Errorf("soak %q, slow %q: %d of %d, want %d", tt.soak, tt.slow, got, tt.n, want)
		}
	}
	t.Setenv("CORRAL_TEST_SLOW", "10")
	for d, want := range map[time.Duration]time.Duration{time.Second: 10 * time.Second, time.Minute: 2 * time.Minute, time.Hour: time.Hour} {
		if got := Slow(d); got != want {
			t.Errorf("%v on a slow machine: %v, want %v", d, got, want)
		}
	}
}

// TestUnitPhase: in the unit phase, tests that need the machine are skipped even with CORRAL_REQUIRE=1, and tests that
// need only a program run.
func TestUnitPhase(t *testing.T) {
	t.Setenv("CORRAL_REQUIRE", "1")
	t.Setenv("CORRAL_TEST_PHASE", "unit")
	for name, needs := range map[string]Need{
		"root": Root, "cgroups": CgroupKill, "user namespaces": UserNamespaces, "Landlock": Landlock,
		"the file system proc": FileSystem("proc"), "a release of the kernel": Kernel(3, 10),
	} {
		if got, want := record(t, func(tb testing.TB) { Require(tb, needs) }), "skip: not a unit test: needs "+name; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := record(t, func(tb testing.TB) { Bin(tb, "corral") }); got != "skip: not a unit test: needs the built programs" {
		t.Errorf("Bin: %q", got)
	}
	if got := record(t, func(tb testing.TB) { Require(tb, Program("sh")) }); got != "" {
		t.Errorf("a program: %q", got)
	}
}

func TestBin(t *testing.T) {
	t.Setenv("CORRAL_TEST_PHASE", "")
	dir := t.TempDir()
	t.Setenv("CORRAL_BIN", dir)
	t.Setenv("CORRAL_REQUIRE", "1")
	file := filepath.Join(dir, "corral")
	bin := func(tb testing.TB) { Bin(tb, "corral") }

	if got := record(t, bin); !strings.Contains(got, "run: make build") {
		t.Errorf("absent: %q", got)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := record(t, bin); !strings.Contains(got, "is not an executable file") {
		t.Errorf("no program: %q", got)
	}
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Bin(t, "corral"); got != file {
		t.Errorf("got %s, want %s", got, file)
	}
}

func TestNoLeaks(t *testing.T) {
	Leaks(t)
	if err := exec.Command("sh", "-c", "exit 0").Run(); err != nil {
		t.Error(err)
	}
}

// TestLeaks leaks one thing of each kind, which is found until it is removed.
func TestLeaks(t *testing.T) {
	tests := []struct {
		name string
		want string
		need []Need
		leak func(t *testing.T) (undo func())
	}{
		{"goroutine", "goroutine ", nil, func(*testing.T) func() {
			stop := make(chan struct{})
			go func() { <-stop }()
			return func() { close(stop) }
		}},
		{"descriptor", "descriptor ", nil, func(t *testing.T) func() {
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			return func() { f.Close() }
		}},
		{"child", "(sleep), state ", []Need{Program("sleep")}, func(t *testing.T) func() {
			return sleeper(t, exec.Command("sleep", "60"))
		}},
		{"orphan in a namespace", "(sleep), state ", []Need{Root, Program("sh"), Program("sleep")}, func(t *testing.T) func() {
			// The shell ends at once, so its child becomes the child of one of our ancestors.
			cmd := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Sscan(string(out), &pid); err != nil {
				t.Fatal(err)
			}
			return func() { _ = syscall.Kill(pid, syscall.SIGKILL) }
		}},
		{"mount", "mount of tmpfs on ", []Need{Root}, func(t *testing.T) func() {
			dir := t.TempDir()
			if err := syscall.Mount("leak", dir, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			return func() { _ = syscall.Unmount(dir, 0) }
		}},
		{"cgroup", "cgroup ", []Need{Root, CgroupKill}, func(t *testing.T) func() {
			dir := filepath.Join(Unified(), fmt.Sprintf("corral-leak-%d", os.Getpid()))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(dir) }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			Require(t, tt.need...)
			warm(t)
			before := census()
			undo := tt.leak(t)
			got := leftovers(before, 50*time.Millisecond)
			undo()
			if !slices.ContainsFunc(got, func(what string) bool { return strings.Contains(what, tt.want) }) {
				t.Errorf("got %q, want one with %q", got, tt.want)
			}
			if got := leftovers(before, time.Minute); len(got) > 0 {
				t.Errorf("afterwards: %q", got)
			}
		})
	}
}

// sleeper starts a command that ends only by a signal.
func sleeper(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
