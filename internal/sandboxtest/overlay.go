package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// privateMounts is set where PrivateMounts has done its work.
const privateMounts = "CORRAL_TEST_PRIVATE_MOUNTS"

// PrivateMounts is m.Run in a process that has a mount namespace of its own, so that what tests mount is gone with it,
// however it ends. Who is not root runs without: such tests need Root.
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.PrivateMounts(m)) }
func PrivateMounts(m *testing.M) int {
	if Root() != nil || os.Getenv(privateMounts) != "" {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), privateMounts+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "a mount namespace for the tests:", err)
	return 1
}

// Overlay mounts one over the directory lower as sessions have it: with userxattr, without redirects and metacopies. Upper
// is its upper directory. It is for tests behind PrivateMounts.
func Overlay(t testing.TB, lower string) (merged, upper string) {
	t.Helper()
	Require(t, Root, FileSystem("overlay"))
	dir := t.TempDir()
	for _, name := range []string{"merged", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged, upper = filepath.Join(dir, "merged"), filepath.Join(dir, "upper")
	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace
	options := "userxattr,lowerdir=" + escape(lower) + ",upperdir=" + escape(upper) + ",workdir=" + escape(filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return merged, upper
}
