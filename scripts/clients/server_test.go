// Package clients has only tests: they use corral through the programs of others. The official MCP clients run every row of
// the contract, over both transports; the official conformance suite checks the protocol; the snippets of the documentation
// are run; and processes are killed and disks filled while a server has promises to keep.
//
// The clients are npm packages, which scripts/setup-clients installs. The servers run as a user without an account, with a
// supervisor of the test.
package clients

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// alice is a user id without an account.
const alice = 61236

// TestMain hides the machine's own corral, whose configuration front-ends would read.
func TestMain(m *testing.M) { os.Exit(sandboxtest.WithoutInstallation(m)) }

// A host is a supervisor, with everything that starting front-ends as alice needs.
type host struct {
	top    string // a directory that every user can reach
	bin    string // the programs, where alice can execute them
	repo   string // alice's
	state  string // XDG_STATE_HOME, alice's
	daemon *sandboxtest.Supervisor
}

// newHost starts a supervisor, which ends with the test and leaves nothing behind.
func newHost(t *testing.T) *host {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("setpriv"))
	top := sandboxtest.OpenDir(t)
	h := &host{top: top, bin: filepath.Join(top, "bin"), repo: filepath.Join(top, "app"), state: filepath.Join(top, "state")}
	err := errors.Join(os.Mkdir(h.bin, 0o755), os.Mkdir(h.repo, 0o755), os.Mkdir(h.state, 0o700),
		os.Chown(h.repo, alice, alice), os.Chown(h.state, alice, alice))
	for _, name := range []string{"corral", "corral-front"} {
		err = errors.Join(err, sandboxtest.CopyProgram(sandboxtest.Bin(t, name), filepath.Join(h.bin, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	h.daemon = sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true})
	return h
}

// asAlice returns a command that runs corral as alice.
func (h *host) asAlice(args ...string) []string {
	id := fmt.Sprint(alice)
	return append([]string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups", filepath.Join(h.bin, "corral")}, args...)
}

// env is the environment of front-ends, with secrets that a job must not see.
func (h *host) env() map[string]string {
	return map[string]string{
		"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": h.top, "XDG_STATE_HOME": h.state, "XDG_CONFIG_HOME": h.top,
		"SECRET_TOKEN": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2", "SSH_AUTH_SOCK": filepath.Join(h.top, "agent-hunter2"),
	}
}

// configure writes a configuration for front-ends, with the repository as "app", and returns its path.
func (h *host) configure(t *testing.T, name, sections string) string {
	t.Helper()
	file := filepath.Join(h.top, name+".yaml")
	text := fmt.Sprintf("version: 1\nrepos:\n  - {id: app, path: %s}\n%s", h.repo, sections)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// listen starts corral serve and returns its URL.
func (h *host) listen(t *testing.T, config string, args ...string) string {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", sandboxtest.Port(t))
	command := h.asAlice(append([]string{"serve", "--listen", address, "--supervisor", h.daemon.Socket, "--config", config}, args...)...)
	cmd := exec.Command(command[0], command[1:]...)
	for name, value := range h.env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := sandboxtest.Start(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if !p.EndsWithin(30 * time.Second) {
			t.Error("SIGTERM has not ended corral serve")
		}
	})
	sandboxtest.Eventually(t, time.Minute, "corral serve listens", func() bool {
		if p.EndsWithin(0) {
			t.Fatal("corral serve has ended")
		}
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "http://" + address + "/mcp"
}

// principals returns a section of the configuration with the tokens of ada and of a stranger, who may do everything, and of a
// reader, who may only read output.
func principals() (tokens map[string]string, section string) {
	tokens = map[string]string{}
	section = "principals:\n"
	for name, more := range map[string]string{"ada": "", "stranger": "", "reader": ", tools: [runtime_query_output]"} {
		tokens[name] = "corral_" + name + "-of-the-tests"
		section += fmt.Sprintf("  - {name: %s, token_sha256: \"%x\"%s}\n", name, sha256.Sum256([]byte(tokens[name])), more)
	}
	return tokens, section
}
