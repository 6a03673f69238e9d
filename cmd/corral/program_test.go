package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// Tests of the built programs, from outside, as a person or a script uses them.

// TestMain gives the programs under test default signal handling. A shell ignores SIGINT and SIGQUIT for its background
// jobs (sh(1)), and children inherit that. A signal with a handler is reset to the default in a child.
func TestMain(m *testing.M) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(sandboxtest.WithoutInstallation(m))
}

// path is the environment of the programs under test, to which a test may add: nothing is inherited from the tester.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A process is a program under test while it runs.
type process struct{ *sandboxtest.Command }

// command returns corral with an environment that inherits nothing from the tester.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral"), args...)
	cmd.Env = []string{path}
	cmd.Dir = "/"
	return cmd
}

// start starts cmd, and kills it at the end of the test if it still runs.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return &process{sandboxtest.Start(t, cmd)}
}

// ready waits until the program has written "ready" to its standard output.
func (p *process) ready(t *testing.T) {
	t.Helper()
	sandboxtest.Eventually(t, time.Minute, fmt.Sprintf("%q is ready", p.Args), func() bool {
		ended := p.EndsWithin(0) // checked first, so that the output is complete
		said := strings.Contains(p.Out.String(), "ready")
		if ended && !said {
			t.Fatalf("%q ended before it wrote ready; its output is %q", p.Args, p.Out.String())
		}
		return said
	})
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}

// An outcome is a program's exit code and output.
type outcome struct {
	code           int // 128+n for signal n
	stdout, stderr string
}

// ends waits for the program's end.
func (p *process) ends(t *testing.T) outcome {
	t.Helper()
	if !p.EndsWithin(5 * time.Minute) { // a compiler with an empty cache takes a minute on a busy machine
		t.Fatalf("%q does not end; stdout: %.2000q", p.Args, p.Out.String())
	}
	return outcome{p.Code(), p.Out.String(), p.Err.String()}
}

// corral runs corral to its end.
func corral(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, command(t, args...)).ends(t)
}

// A daemon is a corrald that listens.
type daemon struct{ *sandboxtest.Supervisor }

func serve(t *testing.T) *daemon {
	t.Helper()
	return &daemon{sandboxtest.Daemon(t, sandboxtest.DaemonOptions{})}
}

var serial atomic.Uint32

// mark returns a unique number of seconds to sleep, by which the test finds its processes.
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

// stubborn returns a job that is hard to end: it ignores every signal that it can, and has an orphan in another session
// that holds the output open. It writes "ready".
func stubborn(mark string) []string {
	return []string{"sh", "-c", `trap '' HUP INT TERM
(setsid sh -c 'sleep ` + mark + ` & exec sleep ` + mark + `' &)
echo ready
while :; do sleep ` + mark + `; done`}
}
