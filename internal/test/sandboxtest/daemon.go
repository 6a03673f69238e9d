package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// smallLayers is a section of the configuration. Tests run at once, many for the same user, whose layers may take half of the room that the
// file system has: with the usual size, it must have 50 GB.
const smallLayers = "layers: {disk: 256MiB}\n"

// DaemonOptions configure a supervisor. The zero value has corrald's defaults: root and group corral can connect.
type DaemonOptions struct {
	Args     []string // further arguments, such as --repo and --toolchain; they override the default ones
	Config   string   // sections of its configuration but layers
	Wrapper  []string // a command that executes its arguments, to which corrald and its arguments are appended
	Everyone bool     // every user may connect; users of tests are in no group
}

// A Supervisor is a corrald started by a test. It shares nothing with the machine's own one: it has its own configuration,
// socket, state directory and instance.
type Supervisor struct {
	DaemonOptions // take effect at the next Start
	Instance      string
	Dir           string // directory of its files, which every user can enter
	Socket, State string

	process *Command // the latest process
	log     Output   // of all its processes
	stopped bool     // the test has stopped or killed it
}

var instances atomic.Uint32

// Daemon starts a supervisor and returns when it serves. The test must have called RequireJails.
//
// At the end of the test the supervisor is stopped (see Stop), and its log is printed if the test failed. If a killed
// supervisor left something behind, it is started again, because its successor must remove that.
func Daemon(t testing.TB, o DaemonOptions) *Supervisor {
	t.Helper()
	s := newSupervisor(t, o)
	t.Cleanup(func() {
		defer func() {
			if t.Failed() {
				t.Logf("the supervisor's log:\n%s", s.Log())
			}
		}()
		if s.stopped && len(Leftovers(s.Instance)) > 0 {
			s.Start(t)
		}
		if !s.stopped {
			s.Stop(t)
		}
	})
	s.Start(t)
	return s
}

// DaemonFails runs a corrald that must end by itself because its arguments are invalid. It returns the exit code and the
// output. The test fails if corrald does not end or leaves something behind.
func DaemonFails(t testing.TB, args ...string) (code int, said string) {
	t.Helper()
	return DaemonFailsIn(t, DaemonOptions{Args: args})
}

// DaemonFailsIn is DaemonFails with any options.
func DaemonFailsIn(t testing.TB, o DaemonOptions) (code int, said string) {
	t.Helper()
	s := newSupervisor(t, o)
	p := Start(t, s.command(t))
	if !p.EndsWithin(time.Minute) {
		t.Fatalf("corrald %q does not end", o.Args)
	}
	s.checkLeftovers(t)
	return p.Code(), s.Log()
}

func newSupervisor(t testing.TB, o DaemonOptions) *Supervisor {
	t.Helper()
	dir := OpenDir(t)
	return &Supervisor{
		DaemonOptions: o, Instance: fmt.Sprintf("test-%d-%d", os.Getpid(), instances.Add(1)),
		Dir: dir, Socket: filepath.Join(dir, "socket"), State: filepath.Join(dir, "supervisor"),
		stopped: true,
	}
}

// command returns the command that starts corrald, after writing its configuration.
func (s *Supervisor) command(t testing.TB) *exec.Cmd {
	t.Helper()
	config := filepath.Join(s.Dir, "supervisor.yaml")
	err := os.WriteFile(config, []byte("version: 1\n"+smallLayers+s.Config), 0o644)
	if err = errors.Join(err, os.Chmod(config, 0o644)); err != nil { // a supervisor in the test's process changes its umask
		t.Fatal(err)
	}
	args := append([]string{}, s.Wrapper...)
	args = append(args, Bin(t, "corrald"), "--config", config, "--instance", s.Instance, "--socket", s.Socket, "--state", s.State)
	args = append(args, s.Args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Start starts the supervisor after it was stopped or killed, and returns when it serves.
func (s *Supervisor) Start(t testing.TB) {
	t.Helper()
	before := s.served()
	s.process = &Command{Cmd: s.command(t)}
	if err := s.process.start(); err != nil {
		t.Fatal(err)
	}
	s.stopped = false
	for end := time.Now().Add(Slow(time.Minute)); s.served() == before; {
		if s.process.EndsWithin(5 * time.Millisecond) {
			s.stopped = true
			t.Fatal("the supervisor ended before it served")
		}
		if time.Now().After(end) {
			t.Fatal("the supervisor does not serve")
		}
	}
	if s.Everyone {
		if err := os.Chmod(s.Socket, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// served returns how often the log reports that the supervisor serves.
func (s *Supervisor) served() int { return strings.Count(s.Log(), `"serving"`) }

// Stop ends the supervisor with SIGTERM, as a service manager does. It fails the test if the supervisor had ended before,
// does not end, or leaves something behind.
func (s *Supervisor) Stop(t testing.TB) {
	t.Helper()
	if s.process.EndsWithin(0) {
		t.Error("the supervisor has ended by itself")
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	if !s.process.EndsWithin(time.Minute) {
		t.Error("SIGTERM did not end the supervisor")
	}
	s.Kill()
	s.checkLeftovers(t)
}

func (s *Supervisor) checkLeftovers(t testing.TB) {
	t.Helper()
	if left := Leftovers(s.Instance); len(left) > 0 {
		t.Errorf("the supervisor left %q behind", left)
	}
}

// Kill kills the supervisor with SIGKILL, and returns when it has ended.
func (s *Supervisor) Kill() {
	s.stopped = true
	s.process.kill()
}

// Signal sends the supervisor a signal that does not end it.
func (s *Supervisor) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(sig); err != nil {
		t.Fatalf("%v: %v", sig, err)
	}
}

// PID returns the process id of the latest process.
func (s *Supervisor) PID() int { return s.process.Process.Pid }

// Code returns the exit code after Stop or Kill.
func (s *Supervisor) Code() int { return s.process.Code() }

// Log returns the output of all its processes so far.
func (s *Supervisor) Log() string { return s.log.String() }
