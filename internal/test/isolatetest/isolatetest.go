// Package isolatetest has helpers of the tests of package isolate and the packages below it: repositories of a user,
// and expectations of errors.
package isolatetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// Owner is the user who owns the repositories of tests.
const Owner = 1001

// NewRepo creates an empty repository that belongs to Owner.
func NewRepo(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	Mkdir(t, dir, Owner)
	return dir
}

// Mkdir creates a directory that user uid owns.
func Mkdir(t testing.TB, path string, uid int) {
	t.Helper()
	mayGive(t, uid)
	if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o755), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// mayGive skips the test unless it can create files of user uid.
func mayGive(t testing.TB, uid int) {
	t.Helper()
	if uid != os.Geteuid() {
		sandboxtest.Require(t, sandboxtest.Root)
	}
}

// Put writes a file with the given mode and owner.
func Put(t testing.TB, path, content string, mode os.FileMode, uid int) {
	t.Helper()
	mayGive(t, uid)
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// Exists reports whether there is a file at path, without following a link.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Eventually waits until what returns "". It polls, because the kernel sends no event when the last mount or cgroup
// is gone.
func Eventually(t testing.TB, what func() string) {
	t.Helper()
	var text string
	patience := sandboxtest.Slow(30 * time.Second)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if text = what(); text == "" {
			return
		}
	}
	t.Errorf("after %v: %s", patience, text)
}

// RefusedAt checks that err is a refusal at a step, with this error number unless it is 0.
func RefusedAt(t testing.TB, what string, err error, step string, errno unix.Errno) {
	t.Helper()
	var r *job.Refusal
	if !errors.As(err, &r) || r.Step != step || errno != 0 && r.Errno != int(errno) {
		t.Errorf("%s: %#v, want a refusal at %q with errno %d (%v)", what, err, step, int(errno), errno)
	}
}
