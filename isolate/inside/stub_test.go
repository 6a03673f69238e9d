package inside

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/rootfs"
)

// source returns a source file of the stub. It skips the test where there is no Go compiler: a guest has the test binary
// but not the sources.
func source(t *testing.T, name string) string {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("go"))
	b, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "cmd", "corral-init", "stub", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// part returns the text between the first occurrence of from and the next one of to.
func part(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	if !ok {
		t.Fatalf("no %q in the source", from)
	}
	inner, _, ok := strings.Cut(rest, to)
	if !ok {
		t.Fatalf("no %q after %q", to, from)
	}
	return inner
}

// names returns the first quoted string of each item: {"name", … or "name",.
func names(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)(?:\{ |^\t|, )"([^"]*)"`).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// TestLayout compares the sizes and offsets of this package with the stub's static assertions, which the compiler checks.
func TestLayout(t *testing.T) {
	header := source(t, "plan.h")
	ours := map[string]int{
		"sizeof(struct prepare)": prepareSize, "sizeof(struct plan)": planSize, "sizeof(struct order)": orderSize,
		"sizeof(struct bind)": bindSize, "sizeof(struct kept)": keptSize, "offsetof(struct kept, list)": keptList, "sizeof(struct report)": reportSize, "sizeof(struct payload)": 16,
		"sizeof(struct probe)": probeSize, "offsetof(struct probe, path)": probePath, "sizeof(struct probed)": ProbedSize,
		"sizeof(struct owner)": ownerSize, "sizeof(struct holder)": holderSize,
		"offsetof(struct plan, wall_ns)": 8, "offsetof(struct plan, rlimit_mask)": 32,
		"offsetof(struct plan, soft)": planSoft, "offsetof(struct plan, hard)": planHard,
		"offsetof(struct plan, paths)": planPaths,
	}
	seen := 0
	for _, m := range regexp.MustCompile(`_Static_assert\((.*) == (\d+), "`).FindAllStringSubmatch(header, -1) {
		want, known := ours[m[1]]
		if !known || strconv.Itoa(want) != m[2] {
			t.Errorf("%s is %s in the stub, %d in this package (known: %v)", m[1], m[2], want, known)
		}
		seen++
	}
	if seen != len(ours) {
		t.Errorf("%d assertions, want %d", seen, len(ours))
	}
}

// TestConstants compares each enum of plan.h.
func TestConstants(t *testing.T) {
	ours := map[string]int{
		"PLAN_VERSION": planVersion, "PATH_SIZE": pathSize, "PATHS": planStrings, "ENV_BYTES": MaxEnv, "STEP_SIZE": stepSize, "RLIMITS": rlimits, "GROUPS": MaxGroups,
		"FD_CONTROL": controlFD, "PLAN_TTY": planTTY, "PLAN_READONLY": planReadOnly, "PLAN_STDIN": planStdin,
		"PLAN_EXEC_FD": planExecFD, "PLAN_LAYER": planLayer, "PLAN_ROOT_CWD": planRootCwd,
		"PLAN_KEPT": planKept, "PLAN_COMMON": planCommonFD, "PLAN_NO_REPO": planNoRepo, "PLAN_MODES": planModes, "KEPT_BYTES": MaxKept,
		"PLAN_SAY_STARTED": planStarted, "PAYLOAD_MAGIC": 0x4c524f43,
		"REPORT_HELLO": int(Hello), "REPORT_READY": int(Ready), "REPORT_TTY": int(Terminal), "REPORT_STARTED": int(Started),
		"REPORT_FAILED": int(Failed), "REPORT_EXITED": int(Exited), "REPORT_DEADLINE": int(DeadlineOver),
		"REPORT_GONE": int(Gone), "GONE_LEFT": goneLeft, "REPORT_DOOR": int(Door),
		"DOOR_NONE": int(NoDoor), "DOOR_THERE": int(DoorThere), "DOOR_OPEN": int(OpenDoor),
		"PROBE_START": int(ProbeStart), "PROBE_LOOK": int(ProbeLook), "PROBE_OPEN": int(ProbeOpen), "PROBE_RECEIVE": int(ProbeReceive),
		"PROBE_HOLD": int(ProbeHold), "PROBE_CLOSE": int(ProbeClose),
	}
	seen := 0
	for _, m := range regexp.MustCompile(`enum \{ (.*) \};`).FindAllStringSubmatch(source(t, "plan.h"), -1) {
		next := 0
		for _, item := range strings.Split(m[1], ", ") {
			name, value, given := strings.Cut(item, " = ")
			if given {
				n, err := strconv.ParseInt(value, 0, 32)
				if err != nil {
					t.Fatal(err)
				}
				next = int(n)
			}
			if got, known := ours[name]; !known || got != next {
				t.Errorf("%s is %d in the stub, %d in this package (known: %v)", name, next, got, known)
			}
			next++
			seen++
		}
	}
	if seen != len(ours) {
		t.Errorf("%d constants, want %d", seen, len(ours))
	}
}

// TestSteps: Steps and the numbers of steps per phase are those of the stub's tables.
func TestSteps(t *testing.T) {
	tables := [][]string{
		names(part(t, source(t, "slot.c"), "slot_steps[] = {", "};")),
		names(part(t, source(t, "ahead.c"), "ahead_steps[] = {", "};")),
		names(part(t, source(t, "place.c"), "place_steps[] = {", "};")),
		names(part(t, source(t, "confine.c"), "confine_steps[] = {", "};")),
	}
	for i := range tables { // keep the names; reasons contain spaces
		tables[i] = slices.DeleteFunc(tables[i], func(s string) bool { return strings.Contains(s, " ") })
	}
	counts := [3]int{len(tables[0]), len(tables[1]), len(tables[2])}
	if want := [3]int{SlotSteps, AheadSteps, PlaceSteps}; counts != want || !slices.Equal(slices.Concat(tables...), Steps) {
		t.Errorf("the stub has %q, want counts %d and names %q", tables, want, Steps)
	}
	if n := len(Steps) + len(Measures); n > 64 {
		t.Errorf("%d steps and measures, but Skip has 64 bits", n)
	}
	for i, name := range Steps {
		if len(name) >= stepSize || Step(name) != 1<<i {
			t.Errorf("%s: bit %#x, %d bytes", name, Step(name), len(name))
		}
	}
	if Step("no-such-step") != 0 {
		t.Error("an unknown step has a bit")
	}
}

// TestMasks: the stub masks exactly the files and directories of rootfs.MaskedProc.
func TestMasks(t *testing.T) {
	text := source(t, "slot.c")
	var files, dirs []string
	for _, m := range rootfs.MaskedProc {
		if m.Dir {
			dirs = append(dirs, m.Path)
		} else {
			files = append(files, m.Path)
		}
	}
	if got := names(part(t, text, "masked_files[] = {", "};")); !slices.Equal(got, files) {
		t.Errorf("files %q, want %q", got, files)
	}
	if got := names(part(t, text, "masked_dirs[] = {", "};")); !slices.Equal(got, dirs) {
		t.Errorf("directories %q, want %q", got, dirs)
	}
	for path, table := range map[string]string{rootfs.MaskFile: "masked_files", rootfs.MaskDir: "masked_dirs"} {
		if !strings.Contains(text, `cover("`+path+`", `+table+`,`) {
			t.Errorf("%s does not cover %s", path, table)
		}
	}
	if !strings.Contains(text, `mount_at("`+rootfs.BootIDFile+`", `) {
		t.Errorf("%s covers nothing", rootfs.BootIDFile)
	}
	if !strings.Contains(text, `mount_at("/proc/sys", "/proc/sys"`) || !slices.Equal(rootfs.ReadOnlyProc, []string{"/proc/sys"}) {
		t.Errorf("rootfs.ReadOnlyProc is %q, but the stub makes /proc/sys read-only", rootfs.ReadOnlyProc)
	}
}

// TestPrivateDirectories: the stub's private directories and their modes are those of rootfs.Private.
func TestPrivateDirectories(t *testing.T) {
	rows := regexp.MustCompile(`\{ "([^"]+)", "([0-7]+)" \}`).
		FindAllStringSubmatch(part(t, source(t, "mounts.c"), "private_dirs[] = {", "};"), -1)
	if len(rows) != len(rootfs.Private) {
		t.Fatalf("%q, want %+v", rows, rootfs.Private)
	}
	for i, want := range rootfs.Private {
		mode := uint32(want.Mode.Perm())
		if want.Mode&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		if got, err := strconv.ParseUint(rows[i][2], 8, 32); rows[i][1] != want.Path || err != nil || uint32(got) != mode {
			t.Errorf("%q, want %s with mode %o", rows[i], want.Path, mode)
		}
	}
}

// TestLandlockPermitsPrivate: the job may write to each of its private directories.
func TestLandlockPermitsPrivate(t *testing.T) {
	text := source(t, "ahead.c")
	for _, d := range rootfs.Private {
		if !strings.Contains(text, `{ "`+d.Path+`", write }`) {
			t.Errorf("the Landlock rules do not let a job write to its %s", d.Path)
		}
	}
}

// TestShippedStubSkipsNothing: the stub that is installed ends when it is told to leave out any step or measure.
func TestShippedStubSkipsNothing(t *testing.T) {
	want := []Report{{Failed, uint32(unix.EINVAL), 0, "prepare"}}
	for bit := range 64 {
		if got := prepared(t, "corral-stub", Prepare{Skip: 1 << bit}).reports(); !slices.Equal(got, want) {
			t.Errorf("bit %d: %+v, want %+v", bit, got, want)
		}
	}
}

// TestTestStubStays: the stub for tests, which the other tests use, is neither installed nor packaged.
func TestTestStubStays(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("go")) // a guest has no sources
	for _, path := range []string{"Makefile", "scripts/package/nfpm.yaml"} {
		b, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			installs := strings.Contains(line, "install ") || strings.HasPrefix(line, "OTHERS") || path != "Makefile"
			if installs && (strings.Contains(line, "TEST_STUB") || strings.Contains(line, "corral-stub-test")) {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
}
