package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestMain hides the machine's own corral, because front-ends read the operator's configuration first.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	os.Exit(sandboxtest.WithoutInstallation(m))
}

var serial atomic.Uint32

// A place is a directory that every user can reach, with the files of a test.
type place struct {
	dir, repo string
	uid       int // owner of the repository; front-ends run as this user
}

// newPlace creates a place with a repository app.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir := sandboxtest.OpenDir(t)
	p := &place{dir: dir, repo: filepath.Join(dir, "app"), uid: 61300}
	state := filepath.Join(dir, "state")
	if err := errors.Join(
		os.Mkdir(p.repo, 0o755), os.Chown(p.repo, p.uid, p.uid),
		os.Mkdir(state, 0o700), os.Chown(state, p.uid, p.uid),
		sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral-front"), filepath.Join(dir, "corral-front")),
	); err != nil {
		t.Fatal(err)
	}
	return p
}

// file writes a file in the repository.
func (p *place) file(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(p.repo, name)
	for dir := filepath.Dir(path); dir != p.repo; dir = filepath.Dir(dir) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, p.uid, p.uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.WriteFile(path, []byte(content), 0o644), os.Chmod(path, 0o644),
		os.Chown(path, p.uid, p.uid),
	); err != nil {
		t.Fatal(err)
	}
}

// config writes a configuration with the repository app.
func (p *place) config(t *testing.T, sections string) string {
	t.Helper()
	path := filepath.Join(p.dir, fmt.Sprintf("config-%d.yaml", serial.Add(1)))
	text := fmt.Sprintf("version: 1\nrepos:\n  - {id: app, path: %s}\n%s", p.repo, sections)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// daemon starts a supervisor that every user may use: the tests' user is in no group.
func daemon(t *testing.T) *sandboxtest.Supervisor {
	t.Helper()
	return sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true})
}

// secrets are in the environment of every tested server.
var secrets = []string{
	"SECRET_TOKEN=hunter2-token", "AWS_SECRET_ACCESS_KEY=hunter2-aws", "AWS_ACCESS_KEY_ID=hunter2-id",
	"SSH_AUTH_SOCK=/run/hunter2-agent.sock",
}

// front returns a command of the program that runs as the place's user.
func (p *place) front(args ...string) *exec.Cmd {
	if len(args) > 0 && (args[0] == "mcp" || args[0] == "serve") {
		args = append(args, "--structured") // tests read the fields; TestTextReplies is about servers without it
	}
	return p.usual(args...)
}

// usual returns a front-end with these arguments alone.
func (p *place) usual(args ...string) *exec.Cmd {
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
