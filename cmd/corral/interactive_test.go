package main

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
)

// A seat is a console with corral on it, at which a test types.
type seat struct {
	*console
	t        *testing.T
	p        *process
	after    unix.Termios // read when corral has ended
	restored chan struct{}
}

// sit starts corral on a console.
func sit(t *testing.T, rows, cols uint16, args ...string) *seat {
	t.Helper()
	s := &seat{console: openConsole(t, rows, cols), t: t, restored: make(chan struct{})}
	s.start(s.attach(command(t, args...)))
	return s
}

func (s *seat) start(cmd *exec.Cmd) {
	s.t.Helper()
	s.p = start(s.t, cmd)
	go func() {
		defer close(s.restored)
		<-s.p.Ended
		if state, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS); err == nil {
			s.after = *state
		}
		s.slave.Close() // and then reading the master ends
	}()
}

func (s *seat) Read(b []byte) (int, error)  { return s.master.Read(b) }
func (s *seat) Write(b []byte) (int, error) { return s.master.Write(b) }

func (s *seat) Resize(rows, cols uint16) error {
	return unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

func (s *seat) Wait() int {
	s.t.Helper()
	<-s.restored
	if s.after != s.before {
		s.t.Errorf("the terminal was left as %+v, it was %+v", s.after, s.before)
	}
	return s.p.ends(s.t).code
}

// TestInteractive plays real programs on a terminal of corral run.
func TestInteractive(t *testing.T) {
	sandboxtest.RequireJails(t)
	clitest.RunPrograms(t, clitest.Programs(), repository, func(t *testing.T, repo string, args, env []string, rows, cols uint16) clitest.Session {
		line := []string{"run", "--tty", "--repo", repo}
		for _, e := range env {
			line = append(line, "--env", e)
		}
		return sit(t, rows, cols, append(append(line, "--"), args...)...)
	})
}

// TestInteractiveSession plays one in a session, with a root file system of its own.
func TestInteractiveSession(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	clitest.RunPrograms(t, clitest.Programs()[:1], repository, func(t *testing.T, repo string, args, env []string, rows, cols uint16) clitest.Session {
		id := d.open(t, "--repo", repo, "--root")
		t.Cleanup(func() { d.session(t, "close", id) })
		line := []string{"session", "exec", id, "--supervisor", d.Socket, "--tty"}
		for _, e := range env {
			line = append(line, "--env", e)
		}
		return sit(t, rows, cols, append(append(line, "--"), args...)...)
	})
}
