package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// A real is an agent as its maker publishes it.
type real struct {
	name    string
	program string   // a pattern of its place below node_modules
	words   []string // of a task that it does without a person
	next    []string // of a second task, in the same conversation
	state   string   // a part of the path of what it keeps of it
}

var reals = []real{
	{
		"claude", "@anthropic-ai/claude-code-linux-*/claude",
		[]string{"-p", "go", "--permission-mode", "bypassPermissions"},
		[]string{"--continue", "-p", "more", "--permission-mode", "bypassPermissions"},
		".claude/projects/",
	},
	{
		"codex", "@openai/codex-linux-*/vendor/*/bin/codex",
		[]string{"exec", "--skip-git-repo-check", "go"},
		[]string{"exec", "--skip-git-repo-check", "resume", "--last", "more"},
		".codex/sessions/",
	},
	{
		"gemini", "@google/gemini-cli/bundle/gemini.js",
		[]string{"-m", "gemini-2.5-flash", "--skip-trust", "--yolo", "-p", "go"},
		[]string{"-m", "gemini-2.5-flash", "--skip-trust", "--yolo", "--resume", "latest", "-p", "more"},
		".gemini/tmp/",
	},
	{
		"opencode", "opencode-linux-*/bin/opencode",
		[]string{"run", "-m", "openrouter/openai/gpt-5", "go"},
		[]string{"run", "-m", "openrouter/openai/gpt-5", "--continue", "more"},
		".local/share/opencode/",
	},
	{
		"copilot", "@github/copilot-linux-*/copilot",
		[]string{"--allow-all-tools", "--model", "gpt-5", "-p", "go"},
		[]string{"--allow-all-tools", "--model", "gpt-5", "--continue", "-p", "more"},
		".copilot/session-state/",
	},
}

// installed returns the path of the real agent, as scripts/setup-clients installs it.
func (a real) installed(t *testing.T) string {
	t.Helper()
	from := filepath.Join(sandboxtest.ModuleRoot(t), ".cache/agents/node_modules")
	found, _ := filepath.Glob(filepath.Join(from, a.program))
	if a.name == "opencode" && runtime.GOARCH != "amd64" {
		t.Skip("its package for this machine is not among those of scripts/agents")
	}
	sandboxtest.Require(t, func() error {
		if len(found) == 0 {
			return fmt.Errorf("%s is not in %s; run: scripts/setup-clients agents", a.program, from)
		}
		return nil
	})
	if a.name == "gemini" {
		sandboxtest.Require(t, sandboxtest.Program("node"))
		if err := exec.Command("node", "-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)").Run(); err != nil {
			t.Skip("it needs Node 20 or newer")
		}
	}
	// Users without an account may not be able to reach the checkout.
	dir := filepath.Join(sandboxtest.OpenDir(t), "node_modules")
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount(from, dir, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, strings.TrimPrefix(found[0], from))
}

// bodies returns what requests say, in one text.
func bodies(got []asked) string {
	var b strings.Builder
	for _, a := range got {
		b.WriteString(a.body + "\n")
	}
	return b.String()
}

// TestReal: each real agent does a task, goes on when a command has printed the placeholder, and finds its conversation the next time. Its
// requests have the key, which is in none of them elsewhere, nor in what the agent prints and keeps.
func TestReal(t *testing.T) {
	for _, a := range reals {
		t.Run(a.name, func(t *testing.T) {
			p := newPlace(t)
			agent := []string{"--program", a.installed(t), a.name}
			p.steps = []string{"env; echo made >made", "cat made; ls -d ~/.[a-z]*"}
			c := p.run(append(agent, a.words...)...)
			if c.Code() != 0 || !strings.Contains(c.Out.String(), "done") {
				t.Fatalf("%d %.3000q %q", c.Code(), c.Out.String(), c.Err.String())
			}
			p.searched()
			out, got := c.Out.String()+c.Err.String(), p.take()
			if said := bodies(got); !strings.Contains(said, "CORRAL_SECRET=corral-") || !strings.Contains(said, "made\\n") {
				t.Errorf("%d requests do not tell the model what its commands printed: %.3000q", len(got), said)
			}
			if id := kept(t, c); sandboxtest.Start(t, p.command("changes", "apply", id)).EndsWithin(time.Minute) {
				if b, err := os.ReadFile(filepath.Join(p.repo, "made")); err != nil || string(b) != "made\n" {
					t.Errorf("%q, %v", b, err)
				}
			}
			c = p.run(append(agent, a.next...)...)
			more := p.take()
			if said := bodies(more); c.Code() != 0 || !strings.Contains(said, "CORRAL_SECRET=corral-") {
				t.Errorf("the next time: %d %.2000q %q, and requests %.3000q", c.Code(), c.Out.String(), c.Err.String(), said)
			}
			for _, a := range append(got, more...) {
				if a.key != key || strings.Contains(a.body, key) {
					t.Errorf("a request has the key %q, and in its body: %v", a.key, strings.Contains(a.body, key))
				}
			}
			out += c.Out.String() + c.Err.String()
			if kept := p.archive(a.name); strings.Contains(out+kept, key) || !strings.Contains(kept, a.state) {
				t.Errorf("the archive has %d bytes; it or what was printed has the key: %v", len(kept), strings.Contains(out+kept, key))
			}
		})
	}
}
