package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

var serial atomic.Uint32

// place makes a directory that every user can reach; t.TempDir's is root's.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "corrald-test-") //nolint:usetesting // t.TempDir() lies in a directory that only root enters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A server is a corrald that listens for everybody: the tests' users are in no group.
type server struct {
	cmd                   *exec.Cmd
	log                   *os.File
	instance, socket, exe string // exe is a corral that every user can execute
	ended                 chan struct{}
}

func serve(t *testing.T, args ...string) *server {
	t.Helper()
	dir := place(t)
	d := &server{
		instance: fmt.Sprintf("test-%d-%d", os.Getpid(), serial.Add(1)), socket: filepath.Join(dir, "socket"),
		exe: filepath.Join(dir, "corral"), ended: make(chan struct{}),
	}
	if err := copyFile(sandboxtest.Bin(t, "corral"), d.exe); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.log, err = os.Create(filepath.Join(dir, "log")); err != nil { //nolint:forbidigo // in a directory of our own
		t.Fatal(err)
	}
	d.cmd = exec.Command(sandboxtest.Bin(t, "corrald"), append(args, "--instance", d.instance, "--socket", d.socket, "--state", filepath.Join(dir, "state"))...)
	d.cmd.Stderr = d.log
	d.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		d.stop(t)
		d.log.Close()
	})
	sandboxtest.Eventually(t, time.Minute, "the supervisor serves", func() bool { return strings.Contains(d.said(t), `"serving"`) })
	checkMode(t, d.socket)
	if err := os.Chmod(d.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	return d
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, 0o755))
}

func (d *server) said(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(d.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stop ends the daemon as a service manager does.
func (d *server) stop(t *testing.T) {
	t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(sandboxtest.Slow(time.Minute)):
		_ = d.cmd.Process.Kill()
		<-d.ended
		t.Errorf("SIGTERM has not ended the supervisor: %s", d.said(t))
	}
}

// as is corral, run by a user.
func (d *server) as(uid uint32, args ...string) *exec.Cmd {
	cmd := exec.Command(d.exe, append([]string{args[0], "--supervisor", d.socket}, args[1:]...)...)
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

// directory makes one with an owner.
func directory(t *testing.T, dir string, uid int, mode os.FileMode) string {
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

// TestStop: SIGTERM ends every job and removes all there is on the host.
func TestStop(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	repo := directory(t, filepath.Join(filepath.Dir(d.socket), "repo"), 61234, 0o755)
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
	if len(sandboxtest.Leftovers(d.instance)) < 2 {
		t.Errorf("the instance has only %q", sandboxtest.Leftovers(d.instance))
	}
	d.stop(t)
	_, _ = io.Copy(io.Discard, output)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.HasPrefix(errs.String(), "corral: ") {
		t.Errorf("the job's corral: exit code %d, %q", code, errs.String())
	}
	if left := sandboxtest.Leftovers(d.instance); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := os.Lstat(d.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, d.said(t))
	}
}

// TestStart: what is wrong with a command line is said, and nothing is left.
func TestStart(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file)
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"help", []string{"--help"}, 0, "Usage: corrald"},
		{"version", []string{"--version"}, 0, "corrald "},
		{"unknown option", []string{"--bogus"}, 125, "hint: corrald --help\n"},
		{"argument", []string{"x"}, 125, "corrald: unexpected argument \"x\"\nhint: corrald --help\n"},
		{"the same instance", []string{"--instance", d.instance, "--socket", dir + "/s"}, 125, "another supervisor is instance "},
		{"the same socket", []string{"--instance", "test-other", "--socket", d.socket}, 125, "corrald: another supervisor listens on "},
		{"a file in the way", []string{"--instance", "test-other", "--socket", file}, 125, "exists and is no socket"},
		{"an instance's name", []string{"--instance", "../x", "--socket", dir + "/s"}, 125, "instance name \"../x\""},
		{"no such repository", []string{"--instance", "test-other", "--socket", dir + "/s", "--repo", dir + "/no"}, 125, "corrald: no directory "},
		{"a home", []string{"--instance", "test-other", "--socket", dir + "/s", "--repo", "/root"}, 125, "home directory"},
	} {
		out, err := exec.Command(sandboxtest.Bin(t, "corrald"), tt.args...).CombinedOutput()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code != tt.code || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: exit code %d, want %d; %q, want %q", tt.name, code, tt.code, out, tt.want)
		}
	}
	if left := sandboxtest.Leftovers("test-other"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	cmd := exec.Command(d.exe, "ps", "--supervisor", d.socket)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the one that was there first: %v, %s", err, out)
	}
}

// TestTimerSlack: every thread has it from the first on, for Go's monitor is one of them.
func TestTimerSlack(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", d.cmd.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		if b, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns"); err != nil || string(b) != "500000\n" {
			t.Errorf("thread %s: %q, %v", thread.Name(), b, err)
		}
	}
}
