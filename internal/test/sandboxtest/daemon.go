package sandboxtest

import (
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

// DaemonOptions say how a supervisor is started. The zero value is one with corrald's defaults, to which only those can
// connect whom the program lets: root, and group corral.
type DaemonOptions struct {
	Args     []string // further arguments: --repo, --toolchain. Of an option that is there twice, theirs holds
	Config   string   // sections of its configuration
	Wrapper  []string // a command that executes its arguments, which are corrald and its own
	Everyone bool     // every user may connect; those of tests are in no group
}

// A Supervisor is a corrald of a test, with nothing of the machine's own: the configuration, the socket, the state
// directory and the name of the instance are its own.
type Supervisor struct {
	DaemonOptions // apply when it is started the next time
	Instance      string
	Dir           string // of its files, which every user can enter
	Socket, State string

	process *Command // the one that was started last
	log     Output   // of all of them
	stopped bool     // it does not run, as the test wants it
}

var instances atomic.Uint32

// Daemon starts a supervisor, and returns when it serves. Preconditions: RequireJails.
//
// The end of the test stops it (see Stop), and prints its log if the test has failed. One that was killed is started once
// more if it has left something, since its successor must remove that.
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

// DaemonFails runs a corrald that is to end by itself, since something is wrong with its arguments. It returns its exit
// code and all that it wrote. The test fails if it does not end, or leaves something.
func DaemonFails(t testing.TB, args ...string) (code int, said string) {
	t.Helper()
	return DaemonFailsIn(t, DaemonOptions{Args: args})
}

// DaemonFailsIn is DaemonFails for a corrald that is started with any options.
func DaemonFailsIn(t testing.TB, o DaemonOptions) (code int, said string) {
	t.Helper()
	s := newSupervisor(t, o)
	p := Start(t, s.command(t))
	if !p.EndsWithin(time.Minute) {
		t.Fatalf("corrald %q has not ended", o.Args)
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

// command is corrald's, and writes its configuration.
func (s *Supervisor) command(t testing.TB) *exec.Cmd {
	t.Helper()
	config := filepath.Join(s.Dir, "supervisor.yaml")
	if err := os.WriteFile(config, []byte("version: 1\n"+s.Config), 0o644); err != nil {
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

// Start starts the supervisor again, once it was stopped or killed, and returns when it serves.
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
			t.Fatal("the supervisor has ended before it served")
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

// served is how many times the log says that the supervisor listens.
func (s *Supervisor) served() int { return strings.Count(s.Log(), `"serving"`) }

// Stop ends the supervisor as a service manager does, and fails the test if it has ended before, does not end, or leaves
// something.
func (s *Supervisor) Stop(t testing.TB) {
	t.Helper()
	if s.process.EndsWithin(0) {
		t.Error("the supervisor has ended by itself")
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	if !s.process.EndsWithin(time.Minute) {
		t.Error("SIGTERM has not ended the supervisor")
	}
	s.Kill()
	s.checkLeftovers(t)
}

func (s *Supervisor) checkLeftovers(t testing.TB) {
	t.Helper()
	if left := Leftovers(s.Instance); len(left) > 0 {
		t.Errorf("the supervisor has left %q", left)
	}
}

// Kill ends the supervisor by SIGKILL, and returns when it has ended.
func (s *Supervisor) Kill() {
	s.stopped = true
	s.process.kill()
}

// Signal sends it a signal that does not end it.
func (s *Supervisor) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(sig); err != nil {
		t.Fatalf("%v: %v", sig, err)
	}
}

// PID is that of the process that runs, or ran last.
func (s *Supervisor) PID() int { return s.process.Process.Pid }

// Code is the exit code, once it was stopped or killed.
func (s *Supervisor) Code() int { return s.process.Code() }

// Log returns what it wrote so far, of all its processes.
func (s *Supervisor) Log() string { return s.log.String() }
