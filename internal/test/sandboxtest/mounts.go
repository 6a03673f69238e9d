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

// privateMounts is set where PrivateMounts has done its work: to the mount namespace that was left.
const privateMounts = "CORRAL_TEST_PRIVATE_MOUNTS"

func inPrivateMounts() bool {
	left := os.Getenv(privateMounts)
	return left != "" && left != mountNamespace()
}

func mountNamespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		panic(err) // no /proc: nothing of this package works
	}
	return name
}

// PrivateMounts is m.Run in a process that has a mount namespace of its own, so that what tests mount is gone with it,
// however it ends. Who is not root runs without: such tests need Root.
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

// WithoutInstallation is PrivateMounts for tests that start programs of ours, on a machine where corral may be installed
// and configured. There are
//
//   - no operator's configuration: front-ends read it before the one that --config names, and a supervisor that root's
//     front-end starts reads no other;
//   - no supervisor at the default socket: root's corral changes asks it first, if it is there;
//   - no state of supervisors that root's front-ends have started, which have no option for another directory;
//   - no configuration and state of the tester, who may have called sudo: HOME is a directory of the tests.
//
// Who is not root cannot hide the operator's files.
//
//	func TestMain(m *testing.M) { os.Exit(sandboxtest.WithoutInstallation(m)) }
func WithoutInstallation(m *testing.M) int {
	if Root() == nil && !inPrivateMounts() {
		return PrivateMounts(m)
	}
	dir, err := os.MkdirTemp("", "corral-test-") // the environment and the mounts are of the whole process, so no test has it
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
	// What is not there hides nothing, and a test must not make it.
	if _, err := os.Stat(operators); err == nil {
		if err := unix.Mount("corral-test", operators, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", operators, err)
		}
	}
	if _, err := os.Stat(socket); err == nil {
		file := filepath.Join(dir, "socket") // on which nobody listens
		err := os.WriteFile(file, nil, 0o600)
		if err = errors.Join(err, unix.Mount(file, socket, "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("%s: %w", socket, err)
		}
	}
	// This one the first supervisor would make.
	if err := os.MkdirAll(supervisors, 0o711); err != nil {
		return err
	}
	if err := unix.Mount(state, supervisors, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", supervisors, err)
	}
	return nil
}
