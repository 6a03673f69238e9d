package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An Output collects the output of a program, and can be read while the program runs.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// A Command is a program that a test has started.
type Command struct {
	*exec.Cmd
	Out, Err Output        // standard output and error, unless the exec.Cmd sets them
	Ended    chan struct{} // closed when it has ended and was waited for
}

// Start starts cmd. At the end of the test it is killed if it still runs, and its standard error is logged if the test
// failed.
func Start(t testing.TB, cmd *exec.Cmd) *Command {
	t.Helper()
	p := &Command{Cmd: cmd}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if text := p.Err.String(); t.Failed() && text != "" {
			t.Logf("%q wrote to standard error:\n%s", cmd.Args, text)
		}
	})
	return p
}

func (p *Command) start() error {
	if p.Stdout == nil {
		p.Stdout = &p.Out
	}
	if p.Stderr == nil {
		p.Stderr = &p.Err
	}
	p.Ended = make(chan struct{})
	p.WaitDelay = Slow(20 * time.Second) // children may have inherited the output
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread that started the process ends (prctl(2)), and a thread may end with a goroutine
		// that was locked to it. This goroutine and its thread last as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.Start()
		started <- err
		if err == nil {
			defer close(p.Ended)
			_ = p.Wait()
		}
	}()
	return <-started
}

func (p *Command) kill() {
	_ = p.Process.Kill()
	<-p.Ended
}

// EndsWithin reports whether the program ends by itself within Slow(d). With 0 it reports whether the program has ended.
func (p *Command) EndsWithin(d time.Duration) bool {
	select {
	case <-p.Ended:
		return true
	default:
	}
	select {
	case <-p.Ended:
		return true
	case <-time.After(Slow(d)):
		return false
	}
}

// Code returns the exit code of an ended program, 128+n if signal n ended it.
func (p *Command) Code() int {
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ProcessState.ExitCode()
}

// OpenDir returns a temporary directory that every user can enter, unlike t.TempDir(). Its path is short enough for
// sockets and contains no symbolic link.
func OpenDir(t testing.TB) string {
	t.Helper()
	return OpenDirIn(t, os.TempDir())
}

// OpenDirIn is OpenDir below parent.
func OpenDirIn(t testing.TB, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "corral-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// CopyProgram copies a program to a new file that every user can execute. No process is forked while the file is open for
// writing: the child would have the descriptor until its execve(2), and whoever starts the program meanwhile gets ETXTBSY
// (https://go.dev/issue/22315).
func CopyProgram(from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return errors.Join(os.WriteFile(to, program, 0o755), os.Chmod(to, 0o755)) // whatever the umask
}

// Children returns the processes that a process has started and not yet waited for. One may end while they are read.
func Children(t testing.TB, pid int) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("process %d has no tasks: %v", pid, err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(task) // a task can end meanwhile
		for _, word := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}
