package main

import (
	"bufio"
	"errors"
	"fmt"
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

// A place is a directory that every user can reach, and what a test has in it.
type place struct {
	dir, repo string
	uid       int // whose the repository is, and who the front-ends run as
}

// newPlace makes a place whose repository is called app.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "corral-front-test-") //nolint:usetesting // t.TempDir() lies in a directory that only root enters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p := &place{dir: dir, repo: filepath.Join(dir, "app"), uid: 61300}
	state := filepath.Join(dir, "state")
	if err := errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(p.repo, 0o755), os.Chown(p.repo, p.uid, p.uid),
		os.Mkdir(state, 0o700), os.Chown(state, p.uid, p.uid),
		copyFile(sandboxtest.Bin(t, "corral-front"), filepath.Join(dir, "corral-front")),
	); err != nil {
		t.Fatal(err)
	}
	return p
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, b, 0o755))
}

// file writes a file into the repository.
func (p *place) file(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(p.repo, name)
	for dir := filepath.Dir(path); dir != p.repo; dir = filepath.Dir(dir) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, p.uid, p.uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode),
		os.Chown(path, p.uid, p.uid),
	); err != nil {
		t.Fatal(err)
	}
}

// config writes a configuration with the repository as app.
func (p *place) config(t *testing.T, sections string) string {
	t.Helper()
	path := filepath.Join(p.dir, fmt.Sprintf("config-%d.yaml", serial.Add(1)))
	text := fmt.Sprintf("version: 1\nrepos:\n  - {id: app, path: %s}\n%s", p.repo, sections)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A daemon is a corrald that listens for everybody: the tests' user is in no group.
type daemon struct {
	p                *place
	instance, socket string
	cmd              *exec.Cmd
	ended            chan struct{}
}

func (p *place) daemon(t *testing.T) *daemon {
	t.Helper()
	n := serial.Add(1)
	d := &daemon{
		p: p, instance: fmt.Sprintf("front-%d-%d", os.Getpid(), n), socket: filepath.Join(p.dir, fmt.Sprintf("socket%d", n)),
	}
	d.start(t)
	t.Cleanup(func() { d.stop(t, syscall.SIGTERM) })
	return d
}

// state is where the supervisor keeps its log.
func (d *daemon) state() string { return filepath.Join(d.p.dir, "of-"+d.instance) }

// start starts it, a second time too.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	args := []string{"--instance", d.instance, "--socket", d.socket, "--state", d.state()}
	d.cmd = exec.Command(sandboxtest.Bin(t, "corrald"), args...)
	d.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving, ended := make(chan struct{}), make(chan struct{})
	d.ended = ended
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for told := false; lines.Scan(); {
			if !told && strings.Contains(lines.Text(), `"serving"`) {
				told = true
				close(serving)
			} else if !strings.Contains(lines.Text(), `"level":"INFO"`) {
				t.Log("corrald: " + lines.Text())
			}
		}
		_ = d.cmd.Wait()
	}()
	select {
	case <-serving:
	case <-ended:
		t.Fatal("corrald has ended")
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Fatal("corrald does not serve")
	}
	if err := os.Chmod(d.socket, 0o666); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	_ = d.cmd.Process.Signal(s)
	select {
	case <-d.ended:
	case <-time.After(sandboxtest.Slow(time.Minute)):
		t.Errorf("%v has not ended corrald", s)
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// secrets are in the environment of every server that is tested.
var secrets = []string{
	"SECRET_TOKEN=hunter2-token", "AWS_SECRET_ACCESS_KEY=hunter2-aws", "AWS_ACCESS_KEY_ID=hunter2-id",
	"SSH_AUTH_SOCK=/run/hunter2-agent.sock",
}

// front is a command of the program as the place's user.
func (p *place) front(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.dir, "corral-front"), args...)
	cmd.Env = append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.dir, "XDG_STATE_HOME=" + filepath.Join(p.dir, "state"),
	}, secrets...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}
