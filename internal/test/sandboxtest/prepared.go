package sandboxtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Prepared returns a directory with what prepare has made of the inputs in it, once for all tests and runs: it is kept in
// the directory of CORRAL_TEST_CACHE. Without that, as in the guest, it is one of the test. The directory is open to root only, unless
// prepare opens it. A test must not change it.
//
// The inputs identify all that the content depends on. Directories of other inputs are removed when no test uses them.
func Prepared(t testing.TB, name string, inputs []string, prepare func(dir string) error) string {
	t.Helper()
	fill := func(dir string) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := prepare(dir); err != nil {
			t.Fatalf("prepare %s: %v", name, err)
		}
	}
	kept := os.Getenv("CORRAL_TEST_CACHE")
	if kept == "" || Root() != nil {
		dir := filepath.Join(OpenDirIn(t, "/var/tmp"), name)
		fill(dir)
		return dir
	}
	all := filepath.Join(kept, "prepared", name)
	if err := os.MkdirAll(all, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(all, fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", inputs)))[:16])
	lock, err := os.OpenFile(all+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	hold := func(how int) {
		if err := unix.Flock(int(lock.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	for hold(unix.LOCK_SH); ; hold(unix.LOCK_SH) { // taking a lock in another way gives it up in between, see flock(2)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		if hold(unix.LOCK_EX); replace(t, all, dir, fill) {
			t.Logf("prepared %s", dir)
		}
	}
}

// replace removes what is in all and makes dir, unless it is there. The caller holds the lock alone.
func replace(t testing.TB, all, dir string, fill func(string)) bool {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return false
	}
	others, err := filepath.Glob(filepath.Join(all, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		if err := os.RemoveAll(other); err != nil {
			t.Fatal(err)
		}
	}
	part := dir + ".part"
	fill(part)
	if err := os.Rename(part, dir); err != nil {
		t.Fatal(err)
	}
	return true
}

// GoCache returns a directory whose subdirectory go-build is a build cache of the Go at path, with what packages fmt, io and
// os need: compiling these takes ten seconds of processor time. Jobs can read it.
func GoCache(t testing.TB, path string) string {
	t.Helper()
	Require(t, Root)
	version, err := exec.Command(path, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return Prepared(t, "go-cache", []string{path, string(version)}, func(dir string) error {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
		cmd := exec.Command(path, "build", "fmt", "io", "os")
		cmd.Dir = "/"
		cmd.Env = []string{
			"GOCACHE=" + filepath.Join(dir, "go-build"), "HOME=" + dir, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"GOTOOLCHAIN=local", "GOTELEMETRY=off",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
