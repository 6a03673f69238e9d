package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A server is a corrald whose socket is open to everybody, because the tests' users are in no group.
type server struct {
	*sandboxtest.Supervisor
	exe string // a corral that every user can execute
}

func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Args: args})
	gid := ""
	if group, err := user.LookupGroup(socketGroup); err == nil {
		gid = group.Gid
	}
	checkMode(t, s.Socket, gid)
	d := &server{s, filepath.Join(s.Dir, "corral")}
	if err := errors.Join(os.Chmod(s.Socket, 0o666), sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), d.exe)); err != nil {
		t.Fatal(err)
	}
	return d
}

// as returns corral as run by a user.
func (d *server) as(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.Command(d.exe, append([]string{args[0], "--supervisor", d.Socket}, args[1:]...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// runs runs corral as a user to its end.
func (d *server) runs(uid uint32, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	cmd := d.as(uid, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// makeDirectory creates a directory with an owner.
func makeDirectory(t *testing.T, dir string, uid int, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// hold starts a job that runs until the end of the test.
func (d *server) hold(t *testing.T, uid uint32, repo string) {
	t.Helper()
	cmd := d.as(uid, "run", "--repo", repo, "--stdin", "--", "sh", "-c", "echo ready; cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_, _ = io.Copy(io.Discard, output)
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(output, make([]byte, len("ready\n"))); err != nil {
		t.Fatalf("the job of user %d: %v", uid, err)
	}
}

// TestStop: SIGTERM ends every job and removes all that the supervisor created on the host.
func TestStop(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	repo := makeDirectory(t, filepath.Join(d.Dir, "repo"), 61234, 0o755)
	d.hold(t, 61234, repo)
	cmd := d.as(61234, "run", "--repo", repo, "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(output, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if len(sandboxtest.Leftovers(d.Instance)) < 2 {
		t.Errorf("the instance has only %q", sandboxtest.Leftovers(d.Instance))
	}
	d.Stop(t)
	_, _ = io.Copy(io.Discard, output)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.HasPrefix(errs.String(), "corral: ") {
		t.Errorf("the job's corral: exit code %d, %q", code, errs.String())
	}
	if left := sandboxtest.Leftovers(d.Instance); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := os.Lstat(d.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if code := d.Code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTimerSlack: every thread has the timer slack, including the Go runtime's monitor thread, which starts early.
func TestTimerSlack(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", d.PID()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		if b, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns"); err != nil || string(b) != "500000\n" {
			t.Errorf("thread %s: %q, %v", thread.Name(), b, err)
		}
	}
}

// TestOnlyProcess: a supervisor that is alone in a mount namespace, as a service can be, finds its programs on a file system other than the
// root's.
func TestOnlyProcess(t *testing.T) {
	sandboxtest.RequireJails(t)
	sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Wrapper: []string{"unshare", "--mount", "sh", "-c", `mount --bind "${1%/*}" "${1%/*}" && exec "$@"`, "-"},
	})
}
