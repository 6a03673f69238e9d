package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
)

// state returns the state letter of a process (proc_pid_stat(5)), "" if it is gone.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

func (term *console) becomes(t *testing.T, what string, p *process, ok func() bool) {
	t.Helper()
	sandboxtest.Eventually(t, 30*time.Second, what, func() bool {
		select {
		case <-p.Ended:
			t.Fatalf("corral has ended before %s; the terminal shows %q", what, term.out.String())
		default:
		}
		return ok()
	})
}

// TestTerminalStopped: while corral is stopped, the terminal has its original settings; when corral continues, the job has
// the terminal again and gets a SIGWINCH to redraw.
func TestTerminalStopped(t *testing.T) {
	sandboxtest.RequireJails(t)
	term := newConsole(t, 24, 80)
	p := term.run(t, `trap 'echo drawn' WINCH; echo ready; while :; do sleep 0.05; done`)
	term.shows(t, "ready\r\n")
	for n, s := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP, syscall.SIGTSTP} {
		p.signal(t, s)
		term.becomes(t, "corral stopped", p, func() bool { return state(p.Process.Pid) == "T" })
		if got := term.state(t); s == syscall.SIGTSTP && got != term.before {
			t.Errorf("while corral is stopped, the terminal is %+v, want %+v", got, term.before)
		}
		// A shell sets the terminal to its own settings, whatever it finds.
		if err := unix.IoctlSetTermios(int(term.slave.Fd()), unix.TCSETS, &term.before); err != nil {
			t.Fatal(err)
		}
		drawn := strings.Count(term.out.String(), "drawn")
		p.signal(t, syscall.SIGCONT)
		term.becomes(t, "the terminal raw again", p, func() bool { return term.state(t) != term.before })
		term.becomes(t, fmt.Sprintf("drawn again after stop %d", n), p, func() bool { return strings.Count(term.out.String(), "drawn") > drawn })
	}
	p.signal(t, syscall.SIGTSTP)
	term.becomes(t, "corral stopped", p, func() bool { return state(p.Process.Pid) == "T" })
	p.signal(t, syscall.SIGTERM)
	p.signal(t, syscall.SIGCONT)
	term.ended(t, p, 143)
}

// TestTerminalOutputClosed: corral ends when the reader of its output is gone.
func TestTerminalOutputClosed(t *testing.T) {
	sandboxtest.RequireJails(t)
	term := newConsole(t, 24, 80)
	cmd := term.attach(command(t, "run", "--repo", repository(t), "--tty", "--", "sh", "-c", "while echo line; do :; done"))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	p := start(t, cmd)
	write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); line != "line\r\n" {
		t.Errorf("read %q (%v)", line, err)
	}
	read.Close()
	term.ended(t, p, 128+int(syscall.SIGPIPE))
}

// TestTerminalUnderShell: corral works as a job of a shell with job control, in the foreground and in the background.
func TestTerminalUnderShell(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("bash"), sandboxtest.Timely)
	screen := clitest.NewScreen(t, 24, 80)
	s := &seat{console: openConsole(t, 24, 80), t: t, restored: make(chan struct{})}
	cmd := s.attach(command(t))
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "-i"}
	cmd.Env = append(cmd.Env, "PS1=outside> ", "HISTFILE=", "TERM="+clitest.Term,
		"RUN="+sandboxtest.Bin(t, "corral")+" run --tty --env PS1=inside> -- bash --norc --noprofile -i")
	cmd.Dir = repository(t)
	s.start(cmd)
	screen.Attach(s)

	screen.Prompts("outside> ")
	screen.Type("$RUN\r")
	screen.Prompts("inside>")
	corral := supervisor(t, s.p.Process.Pid)
	stop := func() {
		t.Helper()
		if err := syscall.Kill(corral, syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		screen.Await("that corral is stopped", func(v clitest.View) bool {
			return strings.HasPrefix(v.Line(v.Row-1), "[1]+  Stopped ") && v.Prompt() == "outside>"
		})
	}
	stop()
	screen.Type("stty -a | grep -c ' icanon'; fg\r")
	screen.Shows("1")
	sandboxtest.Eventually(t, 30*time.Second, "the terminal is raw", func() bool { return s.state(t).Oflag&unix.OPOST == 0 })
	screen.Type("echo $((6 * 7))\r")
	screen.Shows("42")
	stop()
	// In the background corral has no terminal settings to restore, and is not stopped by SIGTTOU for trying.
	screen.Type("kill %1\r")
	screen.Await("why it ended", func(v clitest.View) bool {
		return v.Holds("corral: the job was killed: it did not end after the signal") // the shell ignores the signal
	})
	sandboxtest.Eventually(t, 30*time.Second, "the shell has seen the end of corral", func() bool { return state(corral) == "" })
	screen.Type("\rjobs\r")
	screen.Await("that the shell knows", func(v clitest.View) bool { return v.Holds("[1]+  Exit 137 ") && v.Prompt() == "outside>" })
	screen.Type("exit 5\r")
	screen.Ends()
	if code := s.Wait(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}
