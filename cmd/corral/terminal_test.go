package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// A console is a terminal on which a test types to corral.
type console struct {
	master, slave *os.File
	out           sandboxtest.Output // what it shows
	before        unix.Termios
}

// newConsole returns a console whose output goes to its sandboxtest.Output.
func newConsole(t *testing.T, rows, cols uint16) *console {
	t.Helper()
	term := openConsole(t, rows, cols)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&term.out, term.master)
	}()
	t.Cleanup(func() {
		term.slave.Close()
		<-read // EIO: every descriptor of the slave is closed
	})
	return term
}

// openConsole returns a console that the test reads itself.
func openConsole(t testing.TB, rows, cols uint16) *console {
	t.Helper()
	master, slave := sandboxtest.Terminal(t)
	term := &console{master: master, slave: slave}
	term.resize(t, rows, cols)
	term.before = term.state(t)
	return term
}

func (term *console) resize(t testing.TB, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
}

func (term *console) state(t testing.TB) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(term.master.Fd()), unix.TCGETS) // the master returns the slave's settings, ioctl_tty(2)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

func (term *console) types(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (term *console) shows(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(sandboxtest.Slow(30 * time.Second)); !strings.Contains(term.out.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the terminal shows %q, not %q", term.out.String(), text)
		}
	}
}

// run starts a job on the terminal, as a shell would.
func (term *console) run(t *testing.T, script string, more ...string) *process {
	t.Helper()
	args := append([]string{"run", "--repo", repository(t), "--tty"}, more...)
	cmd := term.attach(command(t, append(args, "--", "sh", "-c", script)...))
	cmd.Env = append(cmd.Env, "TERM=vt220")
	return start(t, cmd)
}

// attach gives cmd the terminal, which it controls.
func (term *console) attach(cmd *exec.Cmd) *exec.Cmd {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd
}

// ended waits for corral's end, and checks that it left the terminal as it was.
func (term *console) ended(t *testing.T, p *process, code int) {
	t.Helper()
	if got := p.ends(t); got.code != code {
		t.Errorf("exit code %d, want %d; the terminal shows %q", got.code, code, term.out.String())
	}
	if got := term.state(t); got != term.before {
		t.Errorf("the terminal was left as %+v, want %+v", got, term.before)
	}
}

func TestTerminal(t *testing.T) {
	sandboxtest.RequireJails(t)
	term := newConsole(t, 33, 101)
	p := term.run(t, `tty; stty size; echo $TERM
trap 'echo resized to $(stty size)' WINCH; trap 'echo interrupted' INT
echo ready; read line; echo got $line; while :; do sleep 0.05; [ -e stop ] && exit 7; done`)
	term.shows(t, "ready\r\n")
	if got := term.out.String(); !strings.HasPrefix(got, "/dev/pts/0\r\n33 101\r\nvt220\r\n") {
		t.Errorf("the job's terminal: %q", got)
	}
	if term.state(t) == term.before {
		t.Error("the terminal is not raw while the job runs")
	}
	term.types(t, "hello\r")
	term.shows(t, "got hello\r\n")
	term.resize(t, 44, 102)
	term.shows(t, "resized to 44 102\r\n")
	term.types(t, "\x03")
	term.shows(t, "interrupted\r\n")
	term.types(t, "\x03")
	term.shows(t, "interrupted\r\n^Cinterrupted\r\n")
	p.signal(t, syscall.SIGTERM)
	term.ended(t, p, 143)
}

// TestTerminalRestored: however corral ends, the terminal's settings are restored.
func TestTerminalRestored(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, tt := range []struct {
		name, script string
		act          func(t *testing.T, p *process, term *console)
		code         int
		more         []string
		program      string // in place of the script
	}{
		{name: "exit", script: "echo ready; exit 9", code: 9},
		{name: "output up to the end", script: "seq 20000; echo ready", code: 0},
		{name: "killed job", script: "echo ready; kill -KILL $$", code: 137},
		{name: "timeout", script: "echo ready; sleep 1000", code: 124, more: []string{"--timeout", fmt.Sprint(sandboxtest.Slow(3 * time.Second))}},
		{name: "no such program", script: "", code: 125, more: []string{"--cwd", "nowhere"}},
		{name: "end of input", script: "echo ready; cat", code: 0, act: func(t *testing.T, _ *process, term *console) { term.types(t, "\x04") }},
		// A shell that is about to wait for a child handles the signal itself, so the job has no child.
		{name: "Ctrl-C", script: "echo ready; exec sleep 1000", code: 130, act: func(t *testing.T, _ *process, term *console) { term.types(t, "\x03") }},
		{name: "program that cannot be executed", script: "", code: 127, program: "nowhere"},
		{name: "Ctrl-\\", script: "echo ready; exec sleep 1000", code: 131, act: func(t *testing.T, _ *process, term *console) { term.types(t, "\x1c") }},
		{name: "interrupt of corral", script: "echo ready; exec sleep 1000", code: 130, act: func(t *testing.T, p *process, _ *console) { p.signal(t, syscall.SIGINT) }},
		{name: "quit of corral", script: "echo ready; exec sleep 1000", code: 131, act: func(t *testing.T, p *process, _ *console) { p.signal(t, syscall.SIGQUIT) }},
		{name: "hang-up of corral", script: "echo ready; exec sleep 1000", code: 129, act: func(t *testing.T, p *process, _ *console) { p.signal(t, syscall.SIGHUP) }},
		{name: "corral told twice", script: "trap '' TERM; echo ready; while :; do sleep 1000; done", code: 143, act: func(t *testing.T, p *process, _ *console) {
			for {
				_ = p.Process.Signal(syscall.SIGTERM)
				select {
				case <-p.Ended:
					return
				case <-time.After(50 * time.Millisecond): // two that are pending at once would be delivered as one
				}
			}
		}},
		{name: "killed supervisor", script: "echo ready; sleep 1000", code: 125, act: func(t *testing.T, p *process, _ *console) {
			if err := syscall.Kill(supervisor(t, p.Process.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.HasSuffix(tt.name, " of corral") {
				tt.more = append(tt.more, "--kill-after", "1m") // it ends by itself: on a busy machine, the usual two seconds may be too few
			}
			term := newConsole(t, 24, 80)
			if tt.program != "" {
				tt.more = append(tt.more, "--", tt.program)
			}
			p := term.run(t, tt.script, tt.more...)
			if tt.script != "" {
				term.shows(t, "ready\r\n")
			}
			if tt.act != nil {
				tt.act(t, p, term)
			}
			term.ended(t, p, tt.code)
			if tt.name == "output up to the end" {
				term.shows(t, "\r\n19999\r\n20000\r\nready\r\n")
			}
		})
	}
	// The next supervisor removes what the killed one left.
	if got := corral(t, "run", "--repo", repository(t), "true"); got.code != 0 {
		t.Errorf("afterwards: %+v", got)
	}
}
