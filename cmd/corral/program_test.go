package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// Tests of the built programs, from outside, as a person or a script uses them.

// TestMain gives the programs the signals that the tester's shell has ignored: those of a background job are
// (SIGINT and SIGQUIT, sh(1)), and are inherited. A signal with a handler is the default one for a child.
func TestMain(m *testing.M) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// path is the environment of the programs under test, but for what a test adds: nothing of the tester's.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A buffer is written by a process and read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A process is a program under test while it runs.
type process struct {
	*exec.Cmd
	out, err buffer
	done     chan struct{}
}

// command is a program of ours with nothing of the tester's around it.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, name), args...)
	cmd.Env = []string{path}
	cmd.Dir = "/"
	return cmd
}

// start starts cmd, which the end of the test kills if need be.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.err
	}
	cmd.WaitDelay = sandboxtest.Slow(20 * time.Second)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

// ready waits until the program has written that it is to its standard output.
func (p *process) ready(t *testing.T) {
	t.Helper()
	const text = "ready"
	for end := time.Now().Add(sandboxtest.Slow(time.Minute)); !strings.Contains(p.out.String(), text); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
		default:
			if time.Now().Before(end) {
				continue
			}
		}
		if !strings.Contains(p.out.String(), text) {
			t.Fatalf("%q has not said %q but %q; stderr: %s", p.Args, text, p.out.String(), p.err.String())
		}
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}

// An outcome is what is left of a program.
type outcome struct {
	code           int // 128+n for signal n
	stdout, stderr string
}

// ends waits for the program's end.
func (p *process) ends(t *testing.T) outcome {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Fatalf("%q runs on; stdout: %.2000q stderr: %s", p.Args, p.out.String(), p.err.String())
	}
	code := p.ProcessState.ExitCode()
	if status := p.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return outcome{code, p.out.String(), p.err.String()}
}

// corral runs corral to its end.
func corral(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, command(t, "corral", args...)).ends(t)
}

// A script is one use of a program, and what is to come of it.
type script struct {
	name   string
	args   []string
	env    []string // beside path
	stdin  string
	code   int
	stdout string   // all of it
	stderr []string // parts of it; none: it is empty
}

// play runs the script. REPO stands for a directory in it.
func (s script) play(t *testing.T, repo string) {
	t.Helper()
	args := make([]string, len(s.args))
	for i, a := range s.args {
		args[i] = strings.ReplaceAll(a, "REPO", repo)
	}
	cmd := command(t, "corral", args...)
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdin = strings.NewReader(s.stdin)
	got := start(t, cmd).ends(t)
	if got.code != s.code {
		t.Errorf("exit code %d, want %d", got.code, s.code)
	}
	if want := strings.ReplaceAll(s.stdout, "REPO", repo); got.stdout != want {
		t.Errorf("stdout %.2000q, want %.2000q", got.stdout, want)
	}
	for _, want := range s.stderr {
		if want = strings.ReplaceAll(want, "REPO", repo); !strings.Contains(got.stderr, want) {
			t.Errorf("stderr %q lacks %q", got.stderr, want)
		}
	}
	if (len(s.stderr) == 0 && got.stderr != "") || t.Failed() {
		t.Errorf("stderr %q", got.stderr)
	}
}

var serial atomic.Uint32

// A daemon is a corrald that listens.
type daemon struct {
	*process
	instance, socket string
}

// serve starts a corrald.
func serve(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{
		instance: fmt.Sprintf("test-%d-%d", os.Getpid(), serial.Add(1)), socket: filepath.Join(dir, "socket"),
	}
	d.process = start(t, command(t, "corrald", "--instance", d.instance, "--socket", d.socket, "--state", filepath.Join(dir, "state")))
	t.Cleanup(func() {
		_ = d.Process.Signal(syscall.SIGTERM)
		d.ends(t)
	})
	sandboxtest.Eventually(t, time.Minute, "the supervisor serves", func() bool {
		return strings.Contains(d.err.String(), `"serving"`)
	})
	return d
}

// mark returns a number of seconds that no other process sleeps.
func mark() string { return fmt.Sprintf("4444.%d%d", os.Getpid(), serial.Add(1)) }

// marked returns the processes that have mark among their arguments, without corral itself.
func marked(mark string) []int {
	var found []int
	for _, pid := range pids() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(line, []byte(mark)) && !bytes.Contains(line, []byte("corral\x00run\x00")) {
			found = append(found, pid)
		}
	}
	return found
}

func pids() []int {
	entries, _ := os.ReadDir("/proc")
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// supervisor returns the corrald that the corral with this pid started.
func supervisor(t *testing.T, parent int) int {
	t.Helper()
	for _, pid := range pids() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			return pid
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

// stubborn is a job that is hard to end: it ignores what can be ignored, and has a process in a session of its own whose
// parent is gone and which holds the output. It says "ready".
func stubborn(mark string) []string {
	return []string{"sh", "-c", `trap '' HUP INT TERM
(setsid sh -c 'sleep ` + mark + ` & exec sleep ` + mark + `' &)
echo ready
while :; do sleep ` + mark + `; done`}
}

func stat(name string) error {
	_, err := os.Lstat(name)
	return err
}
