package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestExec checks the environment of commands.
func TestExec(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "sub/here", "x\n")
	c := p.execSite(t, daemon(t), overStdio, "").client()
	write := object{"type": "workspaceWrite"}
	for _, tt := range []struct {
		name           string
		params         object
		script, stdout string
	}{
		{"timeout, with what ignores it", object{"timeoutMs": 300}, "trap '' TERM; echo a; sleep 600 & wait; sleep 600", "a\n"},
		{"directory", nil, "pwd", p.repo + "\n"},
		{"absolute directory", object{"cwd": p.repo + "/sub/../sub"}, "pwd", p.repo + "/sub\n"},
		{"none of the server's variables", nil, "env | grep -c hunter2", "0\n"},
		{"read-only", nil, "touch new 2>/dev/null || echo refused", "refused\n"},
		{"read-only, said", object{"sandboxPolicy": object{"type": "readOnly"}}, "touch new 2>/dev/null || echo refused", "refused\n"},
		{"its own /tmp", nil, "touch /tmp/new && ls /tmp/new", "/tmp/new\n"},
		{"writing", object{"sandboxPolicy": write}, "echo 1 >written && cat written", "1\n"},
		{"writing with roots", object{"sandboxPolicy": object{"type": "workspaceWrite", "writableRoots": []string{p.repo + "/sub"}, "networkAccess": false}}, "echo 2 >>written && cat written", "1\n2\n"},
		{"no network", nil, "cat /proc/net/dev | grep -vc lo:", "2\n"},
	} {
		if r := c.exec(tt.params, "sh", "-c", tt.script); *r.Stdout != tt.stdout || *r.Stderr != "" {
			t.Errorf("%s: %d, %q, %q", tt.name, *r.ExitCode, *r.Stdout, *r.Stderr)
		}
	}
	info, err := os.Stat(filepath.Join(p.repo, "written"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(p.uid) {
		t.Errorf("%v, %v", info, err)
	}
}

// TestExecFullAccess checks that a client that requests full access gets the profile configured for it, and no more.
func TestExecFullAccess(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	p.file(t, ".git/config", "old\n")
	c := p.execSite(t, d, overStdio, "profiles: {full: {defaults: {pids: 40}, workspace: direct}}\nexec_server: {full_access: full}\n").client()
	for _, kind := range []string{"dangerFullAccess", "externalSandbox"} {
		policy := object{"sandboxPolicy": object{"type": kind}}
		r := c.exec(policy, "sh", "-c", "echo new >.git/config && cat .git/config; id -u; ls /root 2>&1; cat /etc/shadow 2>&1; grep -vc lo: /proc/net/dev")
		lines := strings.Split(*r.Stdout, "\n")
		if lines[0] != "new" || strings.Contains(*r.Stdout, "root:") || lines[1] == "0" || !strings.HasSuffix(*r.Stdout, "\n2\n") {
			t.Errorf("%s: %d %q %q", kind, *r.ExitCode, *r.Stdout, *r.Stderr)
		}
	}
	c.refused("command/exec", `{"command":["true"],"sandboxPolicy":{"type":"externalSandbox","networkAccess":"enabled"}}`, "…")
	// A read-only repository stays read-only.
	readonly := p.execSite(t, d, overStdio, "profiles: {full: {workspace: readonly}}\nexec_server: {full_access: full}\n").client()
	if r := readonly.exec(object{"sandboxPolicy": object{"type": "dangerFullAccess"}}, "sh", "-c", "touch new"); *r.ExitCode == 0 {
		t.Error("a command wrote to a read-only repository")
	}
}

// TestExecOverlay checks that with a workspace of overlay changes stay in a layer of the client, whose handle the reply
// contains.
func TestExecOverlay(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	c := p.execSite(t, daemon(t), overStdio, "profiles: {full: {workspace: overlay}}\nexec_server: {full_access: full}\n").client()
	policy := object{"sandboxPolicy": object{"type": "dangerFullAccess"}}
	c.exec(policy, "sh", "-c", "echo new >file")
	m := c.answer("cat", c.start(policy, "cat", "file"))
	if !strings.Contains(string(m.Result), `"stdout":"new\n"`) || !strings.Contains(string(m.Result), `"changesHandle":"`) {
		t.Errorf("%s", m.raw)
	}
	if _, err := os.Stat(filepath.Join(p.repo, "file")); err == nil {
		t.Error("the file is in the repository")
	}
}
