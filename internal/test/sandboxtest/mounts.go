package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// privateMounts is the environment variable that PrivateMounts sets, to the mount namespace of its caller.
const privateMounts = "CORRAL_TEST_PRIVATE_MOUNTS"

func inPrivateMounts() bool {
	left := os.Getenv(privateMounts)
	return left != "" && left != mountNamespace()
}

func mountNamespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		panic(err) // this package needs /proc
	}
	return name
}

// PrivateMounts is m.Run in a process with a mount namespace of its own, so that mounts of tests disappear with it, however
// it ends. If the caller is not root, it is m.Run: tests that mount need Root.
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.PrivateMounts(m)) }
func PrivateMounts(m *testing.M) int {
	if Root() != nil || inPrivateMounts() {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), privateMounts+"="+mountNamespace())
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

// WithoutInstallation is PrivateMounts for tests that start corral's programs on a machine where corral may be installed.
// It hides
//
//   - the operator's configuration, which front-ends read before the one named with --config, and which is the only one
//     that a supervisor started by root's front-end reads;
//   - the supervisor at the default socket, which root's corral changes asks first;
//   - the state of supervisors started by root's front-ends, which cannot be placed elsewhere;
//   - the configuration and state of the tester, also behind sudo: HOME is a temporary directory.
//
// If the caller is not root, the operator's files stay visible.
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.WithoutInstallation(m)) }
func WithoutInstallation(m *testing.M) int {
	if Root() == nil && !inPrivateMounts() {
		return PrivateMounts(m)
	}
	dir, err := os.MkdirTemp("", "corral-test-") // used by the whole process, so not by a single test's TempDir
	if err == nil {
		err = hideInstallation(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "a machine without an installation for the tests:", err)
		return 1
	}
	return code
}

func hideInstallation(dir string) error {
	home, state := filepath.Join(dir, "home"), filepath.Join(dir, "state")
	err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(home, 0o755), os.Mkdir(state, 0o711), os.Setenv("HOME", home))
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SUDO_UID", "SUDO_GID"} {
		err = errors.Join(err, os.Unsetenv(name))
	}
	if err != nil || Root() != nil {
		return err
	}
	const operators, socket, supervisors = "/etc/corral", "/run/corral/corral.sock", "/var/lib/corral"
	// If there is no directory there is nothing to hide, and a test must not create one.
	if _, err := os.Stat(operators); err == nil {
		if err := unix.Mount("corral-test", operators, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", operators, err)
		}
	}
	if _, err := os.Stat(socket); err == nil {
		file := filepath.Join(dir, "socket") // has no listener
		err := os.WriteFile(file, nil, 0o600)
		if err = errors.Join(err, unix.Mount(file, socket, "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
	}
	// The first supervisor would create this directory.
	if err := os.MkdirAll(supervisors, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(state, supervisors, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", supervisors, err)
	}
	return nil
}
