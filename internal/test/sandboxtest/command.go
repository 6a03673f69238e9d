package sandboxtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An Output keeps what a program writes, and can be read while it does.
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

// String returns all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// A Command is a program that a test has started.
type Command struct {
	*exec.Cmd
	Out, Err Output        // what it wrote, unless its command says where that goes
	Ended    chan struct{} // closed when it has ended and was waited for
}

// Start starts cmd. The end of the test kills it if it still runs, and prints what it wrote to standard error if the test
// has failed.
func Start(t testing.TB, cmd *exec.Cmd) *Command {
	t.Helper()
	p := &Command{Cmd: cmd}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if said := p.Err.String(); t.Failed() && said != "" {
			t.Logf("%q has written to standard error:\n%s", cmd.Args, said)
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
	p.WaitDelay = Slow(20 * time.Second) // for children that have inherited the output
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread ends that started the process (prctl(2)), and a thread of this process ends with a
		// goroutine that was locked to it. This one lasts as long as the process.
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

// EndsWithin reports whether the program ends by itself, within d on an ordinary machine. 0 asks whether it has ended.
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

// Code returns the exit code of a program that has ended, 128+n if signal n ended it.
func (p *Command) Code() int {
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ProcessState.ExitCode()
}

// OpenDir returns a directory of the test that every user can enter; only root can enter t.TempDir(). Its path is short
// enough for sockets, and has no symbolic link.
func OpenDir(t testing.TB) string {
	t.Helper()
	return OpenDirIn(t, os.TempDir())
}

// OpenDirIn is OpenDir in a directory that is not the usual one.
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
