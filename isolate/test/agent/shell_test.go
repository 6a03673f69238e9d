package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// shelled are real agents that have corral-shell in place of their shell, with what their settings say: @SHELL is its path, @API the
// address of the model.
var shelled = []struct {
	real
	host, settings, path string
}{
	{
		reals[0], "api.anthropic.com", `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "@SHELL"}, "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
			{"type": "command", "command": "sh \"$CLAUDE_PROJECT_DIR\"/hook.sh"}]}]}}`, ".claude/settings.json",
	},
	{
		reals[3], "openrouter.ai", `{"shell": "@SHELL", "permission": {"external_directory": "allow"}, "provider": {"openrouter": {"options": {"baseURL": "@API", "apiKey": "@KEY"}}}}`,
		".config/opencode/opencode.json",
	},
}

// TestShells: real agents, outside, run their commands by corral-shell, as an ordinary user. They see neither the key nor files beside the
// repository, and nothing is left of them when the agent is killed. Those of Claude Code have the user's functions and the directory of
// the command before, and a hook denies one from its jail.
func TestShells(t *testing.T) {
	for _, a := range shelled {
		t.Run(a.name, func(t *testing.T) {
			p, bin := newPlace(t), sandboxtest.OpenDir(t)
			d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true})
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Host = a.host
				p.ServeHTTP(w, r)
			}))
			defer api.Close()
			settings := strings.NewReplacer("@SHELL", filepath.Join(bin, "corral-shell"), "@API", api.URL, "@KEY", key).Replace(a.settings)
			err := errors.Join(
				os.WriteFile("/etc/corral/shell.conf", []byte("--supervisor "+d.Socket+"\n"), 0o644), os.Mkdir(filepath.Join(p.repo, ".git"), 0o755),
				os.WriteFile(filepath.Join(p.home, ".bashrc"), []byte("greet() { echo hello-$1; }\n"), 0o644),
				os.WriteFile(filepath.Join(p.home, "secret"), []byte("s3cret\n"), 0o644),
				os.MkdirAll(filepath.Dir(filepath.Join(p.home, a.path)), 0o755), os.WriteFile(filepath.Join(p.home, a.path), []byte(settings), 0o644),
				os.WriteFile(filepath.Join(p.repo, "hook.sh"), []byte("! grep forbidden || { echo not-this >&2; exit 2; }\n"), 0o644),
				exec.Command("chown", "-R", fmt.Sprintf("%d:%[1]d", ada), p.home, p.repo).Run(),
				sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), filepath.Join(bin, "corral-shell")),
			)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove("/etc/corral/shell.conf") })
			program := a.installed(t)
			start := func(steps ...string) *sandboxtest.Command {
				p.steps = steps
				cmd := exec.Command(program, a.words...)
				cmd.Dir = p.repo
				cmd.Env = []string{
					"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.home, "SHELL=/bin/bash", "TERM=xterm", "ANTHROPIC_BASE_URL=" + api.URL,
					"ANTHROPIC_API_KEY=" + key, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ada, Gid: ada}}
				return sandboxtest.Start(t, cmd)
			}
			claude := a.name == "claude"
			c := start("greet you; mkdir 'a b' && cd 'a b'", "pwd; env; cat "+p.home+"/secret; ls -A "+p.home+"; echo end", "echo forbidden")
			if !c.EndsWithin(5*time.Minute) || c.Code() != 0 {
				t.Fatalf("%d %.3000q %q", c.Code(), c.Out.String(), c.Err.String())
			}
			said := bodies(p.take())
			for text, want := range map[string]bool{
				"LOGNAME=job": true, "end": true, "s3cret": false, key: false, "MESSAGING_TOKEN": false,
				"hello-you": claude, p.repo + `/a b\n`: claude, "CLAUDE_CODE_SESSION_ID=": claude, "not-this": claude,
			} {
				if strings.Contains(said, text) != want {
					t.Errorf("requests have %q: %v; they are %.5000q", text, !want, said)
				}
			}
			if _, err := os.Stat(filepath.Join(p.repo, "a b")); err != nil {
				t.Error(err)
			}
			mark := fmt.Sprintf("4322.%d", os.Getpid())
			c = start("trap '' TERM; sleep " + mark + "; sleep " + mark)
			sandboxtest.Eventually(t, time.Minute, "the command runs", func() bool { return len(sleeping(mark)) > 0 })
			for _, pid := range slices.Concat(below(c.Process.Pid), []int{c.Process.Pid}) {
				if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == program {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			sandboxtest.Eventually(t, time.Minute, "nothing of it is left", func() bool { return len(sleeping(mark)) == 0 })
			c.EndsWithin(time.Minute)
		})
	}
}

// sleeping returns the processes that sleep for a time.
func sleeping(seconds string) (found []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline"); string(line) == "sleep\x00"+seconds+"\x00" {
			found = append(found, e.Name())
		}
	}
	return found
}
