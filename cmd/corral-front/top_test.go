package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
)

// A tty is a terminal with a program on it.
type tty struct{ *os.File }

// Resize implements clitest.Driver.
func (t tty) Resize(rows, cols uint16) error {
	return unix.IoctlSetWinsize(int(t.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

// onTerminal starts cmd on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd, rows, cols uint16) (*clitest.Screen, *sandboxtest.Command) {
	t.Helper()
	master, slave := sandboxtest.Terminal(t)
	d := tty{master}
	if err := d.Resize(rows, cols); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = slave, slave
	cmd.Env = append(cmd.Env, "TERM="+clitest.Term)
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	screen := clitest.NewScreen(t, rows, cols) // first: at the end of the test it waits for the end of the program, which Start ends
	started := sandboxtest.Start(t, cmd)
	slave.Close()
	screen.Attach(d)
	return screen, started
}

// TestTop: on a terminal, corral top lists a job with its use, follows its output, ends it after a confirmation, and restores the
// terminal. Without a terminal it says what to use instead.
func TestTop(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	token, hash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("principals: [{name: a, token_sha256: \"%x\"}]\n", hash))
	_, session, _ := w.post(token, "", hello)
	ended := make(chan string, 1)
	go func() {
		a := w.call(token, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"echo from the job; sleep 300"}`)
		ended <- string(a.Result.Structured)
	}()
	program := filepath.Join(p.dir, "corral-top")
	if err := sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral-top"), program); err != nil {
		t.Fatal(err)
	}
	cmd := p.usual("--supervisor", d.Socket)
	cmd.Path, cmd.Args[0] = program, "corral-top"
	screen, top := onTerminal(t, cmd, 20, 110)
	screen.Await("the job", func(v clitest.View) bool {
		return v.Holds("runtime_execute shell") && v.Holds("1 jobs") && v.Holds("iB ") && v.Holds("/tmp/job/code.sh") && v.Holds("▁")
	})
	w.call(token, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"true","relativeCwd":"../\u001b[2Jelsewhere"}`)
	screen.Await("what was denied", func(v clitest.View) bool { return v.Holds("1 denied lately") && v.Holds(`\x1b[2Jelsewhere`) })
	screen.Type("/CODE.SH")
	screen.Await("that the filter selects it", func(v clitest.View) bool { return v.Holds("contains: CODE.SH_") && v.Holds("1 jobs") })
	screen.Type("x")
	screen.Await("that it selects none", func(v clitest.View) bool { return v.Holds("0 of 1 jobs") })
	screen.Type("\x1b")
	screen.Await("all again", func(v clitest.View) bool { return v.Holds("1 jobs") && v.Holds("/ filter") })
	screen.Type("f")
	screen.Await("its output", func(v clitest.View) bool { return v.Has("from the job") })
	screen.Resize(10, 40)
	screen.Await("its output in another size", func(v clitest.View) bool { return v.Has("from the job") && len(v.Lines) == 10 })
	screen.Type("q")
	screen.Await("the list", func(v clitest.View) bool { return v.Holds("JOB ") })
	screen.Type("x")
	screen.Await("the question", func(v clitest.View) bool { return v.Holds("y ends it") })
	screen.Type("y")
	if got := <-ended; !strings.Contains(got, `"cancelled"`) {
		t.Errorf("the job: %s", got)
	}
	screen.Await("that there is none", func(v clitest.View) bool { return v.Holds("0 jobs") })
	screen.Type("q")
	screen.Ends()
	<-top.Ended
	if !top.ProcessState.Success() {
		t.Errorf("%v: %s", top.ProcessState, top.Err.String())
	}
	without := p.usual("--supervisor", d.Socket)
	without.Path, without.Args[0] = program, "corral-top"
	if out, err := without.CombinedOutput(); err == nil || !strings.Contains(string(out), "needs a terminal") {
		t.Errorf("without a terminal: %v, %s", err, out)
	}
}

// TestTopRoot: root's corral top shows the jobs of all users, and is not root while it does.
func TestTopRoot(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	cmd := exec.Command(sandboxtest.Bin(t, "corral-top"), "--supervisor", d.Socket)
	cmd.Env, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin"}, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	job := p.usual("run", "--repo", p.repo, "--supervisor", d.Socket, "--", "sleep", "300")
	job.Path = sandboxtest.Bin(t, "corral")
	sandboxtest.Start(t, job)
	screen, top := onTerminal(t, cmd, 20, 110)
	screen.Await("the job of a user", func(v clitest.View) bool { return v.Holds(fmt.Sprint(p.uid)) && v.Holds("1 jobs") })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", top.Process.Pid))
	if err != nil || !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") || strings.Contains(string(status), "\nUid:\t0\t") {
		t.Errorf("it is root: %v\n%s", err, status)
	}
	screen.Type("\x03")
	screen.Ends()
	select {
	case <-top.Ended:
	case <-time.After(sandboxtest.Slow(20 * time.Second)):
		t.Error("Ctrl-C does not end it")
	}
}
