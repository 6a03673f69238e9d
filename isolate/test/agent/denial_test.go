package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestDenials: what an agent's command prints when it is refused something says what, and the agent goes on.
func TestDenials(t *testing.T) {
	p := newPlace(t)
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	if err := os.MkdirAll(filepath.Join(p.repo, ".git/hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.give()
	for _, tt := range []struct{ name, command, want, told string }{
		{"a host", "curl -sS https://example.org", "Could not resolve host: example.org", "no rule allows example.org; to allow it: - host: example.org"},
		{"a host of a preset", "curl -sS https://registry.npmjs.org", "Could not resolve host", "no rule allows registry.npmjs.org; to allow it: - preset: npm"},
		{"an address", "curl -sS --max-time 9 https://198.51.100.1", "curl: (7) Failed to connect to 198.51.100.1", ""},
		{"a write outside", "echo x >/etc/x", "cannot create /etc/x: Read-only file system", ""},
		{"a protected path", "echo x >.git/hooks/post-commit", "cannot create .git/hooks/post-commit: Read-only file system", ""},
		{"its own installation", "echo x >>" + p.home + "/.local/share/claude/versions/1.0", "Permission denied", ""},
		{"processes", "python3 -c 'import os\nfor i in range(99): os.fork() or __import__(\"time\").sleep(1)'", "Resource temporarily unavailable", ""},
		{"a tool that is not there", "no-such-tool build", "no-such-tool: not found", ""},
		{"a port that is taken", "python3 -u -m http.server 8080 >log & until grep -q Serving log; do sleep 0.1; done; python3 -m http.server 8080", "Address already in use", ""},
		{"root", "sudo -n true", "sudo: ", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.install("cd " + p.repo + "\n" + tt.command + "\necho; echo the agent goes on")
			p.give()
			c := p.run("--direct", "--protect", "all", "--pids", "60", "claude")
			out := c.Out.String() + c.Err.String()
			if c.Code() != 0 || !strings.Contains(c.Out.String(), "the agent goes on") || !strings.Contains(out, tt.want) || !strings.Contains(out, tt.told) {
				t.Errorf("%d %q %q", c.Code(), c.Out.String(), c.Err.String())
			}
		})
	}
	// What ends the agent itself: the user is told why, and what it kept and wrote is there the next time.
	for _, tt := range []struct{ option, command, told string }{
		{"--memory=100M", "tail /dev/zero", "memory limit reached (100MiB)"},
		{"--timeout=3s", "sleep 60", "3s"},
	} {
		p.install("mkdir -p ~/.claude; echo x >~/.claude/mark; cd " + p.repo + "; echo y >wrote; " + tt.command + "; echo it goes on")
		c := p.run("--direct", tt.option, "claude")
		if c.Code() == 0 || !strings.Contains(c.Err.String(), tt.told) || strings.Contains(c.Out.String(), "it goes on") {
			t.Errorf("%s: %d %q %q", tt.option, c.Code(), c.Out.String(), c.Err.String())
		}
		p.install("cd " + p.repo + "; cat ~/.claude/mark wrote; rm ~/.claude/mark wrote")
		if c := p.run("--direct", "claude"); c.Out.String() != "x\ny\n" {
			t.Errorf("after %s: %d %q %q", tt.option, c.Code(), c.Out.String(), c.Err.String())
		}
	}
	if err := os.Remove(filepath.Join(p.home, ".config/corral/keys/anthropic")); err != nil {
		t.Fatal(err)
	}
	if c := p.run("claude"); c.Code() == 0 || !strings.Contains(c.Err.String(), "no key of anthropic: neither the variable ANTHROPIC_API_KEY nor ") {
		t.Errorf("without a key: %d %q", c.Code(), c.Err.String())
	}
}
