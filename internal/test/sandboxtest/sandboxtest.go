// Package sandboxtest declares what a test needs of the machine, checks that it leaves nothing there, and starts
// supervisors (Daemon) and other programs (Start) for it. It has what tests of many packages use: repositories of a user
// (NewRepo), and hostile text (CheckShown). Only tests import it.
//
// A test that needs something begins with
//
//	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.CgroupKill, sandboxtest.Program("python3"))
//
// and is skipped, with the reason, on a machine that lacks one of these. On a machine that should have everything, a skip
// would hide a failure: with CORRAL_REQUIRE=1, which `make test` sets, the test fails instead, unless it is for another
// kind of machine (CgroupV2 on one with v1, a later Kernel), for example the guest of `make test-vm`.
//
// A test that needs the machine (any need but a program), or one of our built programs, is a machine test; all others are
// unit tests. scripts/test runs the two apart.
//
// The environment it reads:
//
//	CORRAL_REQUIRE      1: a missing need fails the test
//	CORRAL_LACKS        programs that this machine intentionally lacks: tests that need them are skipped, not failed
//	CORRAL_TEST_PHASE   unit: tests that need more than a user's rights and a compiler are skipped, see scripts/test
//	CORRAL_TEST_SOAK    1: loops run in full, see Scale
//	CORRAL_TEST_SLOW    by which factor this machine is slower than others: stretches timeouts, shortens loops
//	CORRAL_TEST_CACHE   directory for what is prepared once for all runs, see Prepared
//	CORRAL_TEST_MACHINE own: no other test runs in this PID, mount and cgroup namespace, see Leaks
//	CORRAL_BIN          directory of the built programs (default: bin in the root of the module)
package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Require skips the test unless the machine meets all needs. With CORRAL_REQUIRE=1 it fails the test instead, unless the
// test is for another kind of machine.
func Require(t testing.TB, needs ...Need) {
	t.Helper()
	for _, need := range needs {
		if err := need(); err != nil {
			missing(t, err)
		}
	}
	if Root() == nil && len(needs) > 0 {
		holdMachine(t, unix.LOCK_SH)
	}
}

// missing skips or fails the test because of an unmet need.
func missing(t testing.TB, err error) {
	t.Helper()
	if need := machineNeed(""); errors.As(err, &need) {
		t.Skip(err)
	}
	var other otherMachine
	if os.Getenv("CORRAL_REQUIRE") == "1" && !errors.As(err, &other) {
		t.Fatalf("unmet need with CORRAL_REQUIRE=1: %v", err)
	}
	t.Skip(err)
}

// `make soak` runs every repetition of a loop, `make test` one in testShare, and unit tests with -short one in shortShare.
const (
	testShare  = 5
	shortShare = 20
)

// Scale returns how many of the n repetitions of a test to run: all with CORRAL_TEST_SOAK=1, otherwise a share, and a
// smaller one on a slow machine. The result is at least 1.
func Scale(n int) int {
	share := testShare
	switch {
	case Soak():
		share = 1
	case testing.Short():
		share = shortShare
	}
	return max(1, n/(share*slowness()))
}

// Soak reports whether tests run in full: each edge of each runtime, not one of each kind.
func Soak() bool { return os.Getenv("CORRAL_TEST_SOAK") == "1" }

// OneGoroutine skips a test under the race detector, which finds nothing in a single goroutine and takes ten times as
// long. It is for tests that take at least a second.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if err := machine("no race detector"); raced && err != nil {
		t.Skip(err)
	}
}

// Slow returns the timeout d stretched on a slow machine, to two minutes at most.
func Slow(d time.Duration) time.Duration {
	return min(d*time.Duration(slowness()), max(d, 2*time.Minute))
}

// slowness returns CORRAL_TEST_SLOW, or 1 if it is not a positive number.
func slowness() int {
	n, err := strconv.Atoi(os.Getenv("CORRAL_TEST_SLOW"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// Bin returns the path of a program built by `make build`, in bin or CORRAL_BIN. It does not check that the program is up
// to date.
func Bin(t testing.TB, name string) string {
	t.Helper()
	if err := machine("the built programs"); err != nil {
		t.Skip(err)
	}
	dir := os.Getenv("CORRAL_BIN")
	if dir == "" {
		dir = filepath.Join(ModuleRoot(t), "bin")
	}
	file := filepath.Join(dir, name)
	info, err := os.Stat(file)
	if err != nil {
		missing(t, fmt.Errorf("%w; run: make build", err))
	} else if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		t.Fatalf("%s is not an executable file", file)
	}
	return file
}

// ModuleRoot returns the directory of the go.mod at or above the working directory, which for a test is its package's
// directory.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no go.mod at or above %s", start)
		}
	}
}
