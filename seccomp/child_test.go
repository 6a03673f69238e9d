package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary acts as the job: run again with childMode set, it loads the filter of a profile into itself and
// runs one of childModes.
const (
	childMode    = "SECCOMP_TEST_CHILD"
	childProfile = "SECCOMP_TEST_PROFILE" // empty: no filter
	childUser    = "SECCOMP_TEST_USER"    // not empty: drop root first
)

var childModes = map[string]func(args []string) error{
	"attempts": childAttempts, // make the calls of attempts, print their errnos
	"egress":   childEgress,   // connect to itself, make the calls of egressAttempts, print their errnos
	"exec":     childExec,     // become the program in args
	"network":  childNetwork,  // connect to itself over loopback
}

func TestMain(m *testing.M) {
	mode := os.Getenv(childMode)
	if mode == "" {
		os.Exit(m.Run())
	}
	if err := leaveRoot(os.Getenv(childUser)); err != nil {
		fmt.Fprintln(os.Stderr, "drop root:", err)
		os.Exit(3)
	}
	if err := confine(os.Getenv(childProfile)); err != nil {
		fmt.Fprintln(os.Stderr, "load the filter:", err)
		os.Exit(3)
	}
	if err := childModes[mode](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, mode+":", err)
		os.Exit(4)
	}
	os.Exit(0)
}

const nobody = 65534 // the ordinary user of a test that runs as root

// leaveRoot switches to an unprivileged user, as jobs have, since some programs behave differently as root. It does
// nothing if the test does not run as root.
func leaveRoot(ask string) error {
	if ask == "" || os.Getuid() != 0 {
		return nil
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody),
		syscall.Setresuid(nobody, nobody, nobody))
}

// confine loads a profile into all threads of this process, as jobs do.
func confine(profile string) error {
	if profile == "" {
		return nil
	}
	if isEgress(profile) {
		program, err := Compile(profile, runtime.GOARCH)
		if err == nil {
			err = enter(program)
		}
		return err
	}
	ahead, last, err := Split(profile, runtime.GOARCH)
	if err != nil {
		return err
	}
	err = enter(ahead)
	if err == nil && len(last) > 0 {
		err = enter(last)
	}
	return err
}

// enter loads a program into all threads.
func enter(program []byte) error {
	// no_new_privs is set for this thread only, until TSYNC sets it for the others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	instructions := load(program).program
	list := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&list)))
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d cannot synchronize its filter", thread)
	}
	return nil
}

// child returns the command that runs this test binary in a mode.
func child(t testing.TB, mode, profile string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Dir = workDir(t)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childProfile+"="+profile)
	return cmd
}

// workDir returns a directory that any user may use: the parent of t.TempDir is open to the caller only.
func workDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "seccomp") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// childAttempts prints a JSON array with the errno of each attempt, -1 for a call that this architecture lacks.
func childAttempts([]string) error {
	results := make([]int, len(attempts))
	for i, a := range attempts {
		results[i] = a.try()
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

func childExec(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	for _, name := range []string{childMode, childProfile, childUser} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return syscall.Exec(path, args, os.Environ())
}

// childNetwork listens (for which Go tries multipath TCP first), connects and copies with splice, over TCP and over a
// Unix socket.
func childNetwork([]string) error {
	for _, where := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", "socket"}} {
		listener, err := net.Listen(where[0], where[1])
		if err != nil {
			return err
		}
		echoed := make(chan error, 1)
		go func() { echoed <- echo(listener) }()
		got, err := say(listener.Addr(), "hello")
		if err := errors.Join(err, <-echoed, listener.Close()); err != nil {
			return err
		}
		if got != "hello" {
			return fmt.Errorf("%s: echo is %q", where[0], got)
		}
	}
	return nil
}

func echo(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = io.Copy(conn, conn)
	return errors.Join(err, conn.Close())
}

func say(to net.Addr, text string) (string, error) {
	conn, err := net.Dial(to.Network(), to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}
