package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// overOne runs a test of what does not depend on the transport.
func overOne(t *testing.T, test func(t *testing.T, p *place, s *execSite)) {
	t.Helper()
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	test(t, p, p.execSite(t, daemon(t), overStdio, ""))
}

// everywhere runs a test over each transport, with one supervisor.
func everywhere(t *testing.T, test func(t *testing.T, p *place, s *execSite)) {
	t.Helper()
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	for _, over := range transports() {
		if over != overStdio && sandboxtest.Timely() != nil {
			continue // the transport does not depend on the machine
		}
		t.Run(over, func(t *testing.T) { test(t, p, p.execSite(t, d, over, "")) })
	}
}

// TestExecMalformed checks that malformed messages are answered, and that the connection stays open.
func TestExecMalformed(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *place, s *execSite) {
		c := s.client()
		for text, code := range map[string]int{
			`{`: -32700, `{"id":1,"method":"x",}`: -32700, `nonsense`: -32700, "\xff": -32700, `{"id":1,"id":2,"method":"x"}`: -32600,
			`[]`: -32600, `1`: -32600, `"x"`: -32600, `null`: -32600, `{"id":{},"method":"x"}`: -32600, `{"id":1.5,"method":"x"}`: -32600,
			`{"id":true,"method":"x"}`:   -32600,
			strings.Repeat("[", 100_000): -32700,
		} {
			waiting := make(chan *execMessage, 1)
			c.mu.Lock()
			for _, id := range []string{"", "null", "1"} {
				c.pending[id] = waiting
			}
			c.mu.Unlock()
			if err := c.write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			m := c.answer(text[:min(len(text), 20)], waiting)
			if m.Error == nil || m.Error.Code != code {
				t.Errorf("%.30q: %s", text, m.raw)
			}
			if code == -32700 && string(m.ID) != "null" {
				t.Errorf("%.30q: id %s", text, m.ID)
			}
			c.mu.Lock()
			for _, id := range []string{"", "null", "1"} {
				delete(c.pending, id)
			}
			c.mu.Unlock()
		}
		// Notifications have no answer, and ids are returned unchanged.
		for _, text := range []string{`{"method":"initialized"}`, `{"id":77,"result":{}}`, `{"method":"nobody/knows","params":{}}`} {
			_ = c.write([]byte(text))
		}
		for _, id := range []string{`"a"`, `"1"`, `-5`, `9223372036854775807`, `""`} {
			waiting := make(chan *execMessage, 1)
			c.mu.Lock()
			c.pending[id] = waiting
			c.mu.Unlock()
			_ = c.write([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"command/exec","params":{"command":["echo","hi"],"tty":null,"processId":null,"other":[1]}}`))
			if r := c.result(id, waiting); *r.Stdout != "hi\n" {
				t.Errorf("%s: %+v", id, r)
			}
		}
		if len(c.stray) > 0 {
			t.Errorf("unexpected messages: %q", c.stray)
		}
	})
}

// TestExec checks the environment of commands and their results.
func TestExec(t *testing.T) {
	overOne(t, func(t *testing.T, p *place, s *execSite) {
		p.file(t, "sub/here", "x\n", 0o644)
		c := s.client()
		write := object{"type": "workspaceWrite"}
		for _, tt := range []struct {
			name           string
			params         object
			script         string
			code           int
			stdout, stderr string
		}{
			{"nothing", nil, "true", 0, "", ""},
			{"output", nil, "echo out; echo err >&2", 0, "out\n", "err\n"},
			{"exit code", nil, "exit 3", 3, "", ""},
			{"exit code of more than a byte", nil, "exit 300", 44, "", ""},
			{"signal", nil, "kill -TERM $$", 143, "", ""},
			{"killed", nil, "kill -KILL $$", 137, "", ""},
			{"timeout", object{"timeoutMs": 300}, "echo partial; sleep 600", 124, "partial\n", ""},
			{"timeout, with what ignores it", object{"timeoutMs": 300}, "trap '' TERM; echo a; sleep 600 & wait; sleep 600", 124, "a\n", ""},
			{"no timeout", object{"disableTimeout": true}, "echo x", 0, "x\n", ""},
			{"directory", nil, "pwd", 0, p.repo + "\n", ""},
			{"relative directory", object{"cwd": "sub"}, "cat here", 0, "x\n", ""},
			{"absolute directory", object{"cwd": p.repo + "/sub/../sub"}, "pwd", 0, p.repo + "/sub\n", ""},
			{"variables", object{"env": object{"A": "1 2", "EMPTY": "", "HOME": nil}}, `echo "$A,${EMPTY-unset},${HOME-unset}"`, 0, "1 2,,unset\n", ""},
			{"none of the server's variables", nil, "env | grep -c hunter2", 1, "0\n", ""},
			{"no input", nil, "cat", 0, "", ""},
			{"cap", object{"outputBytesCap": 3}, "echo hello; echo world >&2", 0, "hel", "wor"},
			{"cap of nothing", object{"outputBytesCap": 0}, "echo hello", 0, "", ""},
			{"cap within a character", object{"outputBytesCap": 3}, "printf 'aä€'", 0, "aä", ""},
			{"no cap", object{"disableOutputCap": true}, "echo hello", 0, "hello\n", ""},
			{"no text", nil, `printf 'a\377b'`, 0, "a\uFFFDb", ""},
			{"read-only", nil, "touch new 2>/dev/null || echo refused", 0, "refused\n", ""},
			{"read-only, said", object{"sandboxPolicy": object{"type": "readOnly"}}, "touch new 2>/dev/null || echo refused", 0, "refused\n", ""},
			{"its own /tmp", nil, "touch /tmp/new && ls /tmp/new", 0, "/tmp/new\n", ""},
			{"writing", object{"sandboxPolicy": write}, "echo 1 >written && cat written", 0, "1\n", ""},
			{"writing with roots", object{"sandboxPolicy": object{"type": "workspaceWrite", "writableRoots": []string{p.repo + "/sub"}, "networkAccess": false}}, "echo 2 >>written && cat written", 0, "1\n2\n", ""},
			{"no network", nil, "cat /proc/net/dev | grep -vc lo:", 0, "2\n", ""},
			{"a child that stays", object{"timeoutMs": 60_000}, "sleep 600 & echo gone", 0, "gone\n", ""},
		} {
			r := c.exec(tt.params, "sh", "-c", tt.script)
			if *r.ExitCode != tt.code || *r.Stdout != tt.stdout || *r.Stderr != tt.stderr {
				t.Errorf("%s: %d, %q, %q", tt.name, *r.ExitCode, *r.Stdout, *r.Stderr)
			}
			capped := strings.HasPrefix(tt.name, "cap")
			if r.StdoutTruncated != capped {
				t.Errorf("%s: truncated %t", tt.name, r.StdoutTruncated)
			}
		}
		info, err := os.Stat(filepath.Join(p.repo, "written"))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(p.uid) {
			t.Errorf("%v, %v", info, err)
		}
		_ = os.Remove(filepath.Join(p.repo, "written"))
	})
}

// TestExecProtected checks that commands which may write to the repository cannot change files that make tools of the
// host run code.
func TestExecProtected(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	for _, name := range []string{".git/config", ".git/hooks/pre-commit", ".codex/config.toml", ".agents/x", "nested/.git/config"} {
		p.file(t, name, "old\n", 0o644)
	}
	c := p.execSite(t, daemon(t), overStdio, "").client()
	for _, name := range []string{".git/config", ".git/hooks/pre-commit", ".git/new", ".codex/config.toml", ".agents/x", "nested/.git/config"} {
		r := c.exec(object{"sandboxPolicy": object{"type": "workspaceWrite"}}, "sh", "-c", `echo new >"$1"`, "sh", name)
		b, _ := os.ReadFile(filepath.Join(p.repo, name))
		if *r.ExitCode == 0 || strings.Contains(string(b), "new") {
			t.Errorf("%s: %d %q", name, *r.ExitCode, b)
		}
	}
	if r := c.exec(object{"sandboxPolicy": object{"type": "workspaceWrite"}}, "sh", "-c", "cat .git/config && echo new >nested/file"); *r.ExitCode != 0 {
		t.Errorf("%d %s", *r.ExitCode, *r.Stderr)
	}
}

// TestExecFullAccess checks that a client that requests full access gets the profile configured for it, and no more.
func TestExecFullAccess(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	p.file(t, ".git/config", "old\n", 0o644)
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

// TestExecStream checks streamed input and output.
func TestExecStream(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *place, s *execSite) {
		c := s.client()
		answer := c.start(object{"processId": "cat", "streamStdin": true, "streamStdoutStderr": true}, "sh", "-c", "cat; echo end >&2")
		c.must("command/exec/write", object{"processId": "cat", "deltaBase64": base64Of("one\n")})
		sandboxtest.Eventually(t, 20*time.Second, "it comes back", func() bool { return string(c.of("cat").data[0]) == "one\n" })
		c.must("command/exec/write", object{"processId": "cat", "deltaBase64": base64Of("two\n"), "closeStdin": true})
		r := c.result("cat", answer)
		d := c.of("cat")
		if *r.ExitCode != 0 || *r.Stdout != "" || *r.Stderr != "" || string(d.data[0]) != "one\ntwo\n" || string(d.data[1]) != "end\n" || d.last > r.nth {
			t.Errorf("%+v, %q", r, d.data)
		}
		// The id can be used again; closed input stays closed.
		answer = c.start(object{"processId": "cat", "streamStdin": true}, "sh", "-c", "cat; sleep 600")
		c.must("command/exec/write", object{"processId": "cat", "closeStdin": true})
		c.refused("command/exec/write", `{"processId":"cat","deltaBase64":"YQ=="}`, "stdin is already closed")
		c.must("command/exec/terminate", object{"processId": "cat"})
		if r := c.result("cat", answer); *r.ExitCode != 137 {
			t.Errorf("%+v", r)
		}
		// A cap ends the deltas, but not the process.
		c.forget("capped")
		r = c.exec(object{"processId": "capped", "streamStdoutStderr": true, "outputBytesCap": 1000}, "sh", "-c", "head -c 300000 /dev/zero; echo done >&2; exit 7")
		d = c.of("capped")
		if *r.ExitCode != 7 || d.total[0] != 1000 || !d.caps[0] || d.after[0] != 0 || string(d.data[1]) != "done\n" || d.caps[1] {
			t.Errorf("%d, %v, %v", *r.ExitCode, d.total, d.caps)
		}
		c.forget("exact")
		c.exec(object{"processId": "exact", "streamStdoutStderr": true, "outputBytesCap": 1000}, "head", "-c", "1000", "/dev/zero")
		if d = c.of("exact"); d.total[0] != 1000 || d.caps[0] {
			t.Errorf("nothing was dropped: %v, %v", d.total, d.caps)
		}
	})
}

// TestExecTerminal checks that a command gets a terminal that can be resized.
func TestExecTerminal(t *testing.T) {
	overOne(t, func(t *testing.T, _ *place, s *execSite) {
		c := s.client()
		answer := c.start(object{"processId": "tty", "tty": true, "size": object{"rows": 31, "cols": 101}},
			"sh", "-c", "trap 'stty size; echo int' INT; trap 'stty size' WINCH; stty -echo; stty size; while :; do sleep 0.02; done")
		sees := func(want string) {
			t.Helper()
			sandboxtest.Eventually(t, 20*time.Second, want, func() bool { return strings.Contains(string(c.of("tty").data[0]), want) })
		}
		sees("31 101\r\n")
		c.must("command/exec/resize", object{"processId": "tty", "size": object{"rows": 5, "cols": 6}})
		sees("5 6\r\n")
		c.must("command/exec/write", object{"processId": "tty", "deltaBase64": base64Of("\x03")})
		sees("int\r\n")
		c.must("command/exec/terminate", object{"processId": "tty"})
		if r := c.result("tty", answer); *r.ExitCode != 137 || *r.Stdout != "" {
			t.Errorf("%+v", r)
		}
		c.forget("tty")
		if r := c.exec(object{"processId": "tty", "tty": true}, "sh", "-c", "stty size; kill -TERM $$"); *r.ExitCode != 143 || string(c.of("tty").data[0]) != "24 80\r\n" {
			t.Errorf("%d %q", *r.ExitCode, c.of("tty").data[0])
		}
	})
}

// TestExecProcess checks the methods process/*.
func TestExecProcess(t *testing.T) {
	overOne(t, func(t *testing.T, p *place, s *execSite) {
		c := s.client()
		exited := make(chan *execMessage, 1)
		c.mu.Lock()
		c.exited["h"] = exited
		c.mu.Unlock()
		c.must("process/spawn", object{
			"command": []string{"sh", "-c", "cat; echo no >&2; exit 4"}, "processHandle": "h", "cwd": p.repo, "streamStdin": true, "streamStdoutStderr": true,
		})
		c.refused("process/spawn", fmt.Sprintf(`{"command":["true"],"processHandle":"h","cwd":%q}`, p.repo), "duplicate…")
		c.must("process/writeStdin", object{"processHandle": "h", "deltaBase64": base64Of("hi"), "closeStdin": true})
		m := c.answer("process/exited", exited)
		var e struct {
			ProcessHandle, Stdout, Stderr                           *string
			ExitCode                                                *int
			StdoutCapReached, StderrCapReached, OutputDrainTimedOut *bool
		}
		if err := json.Unmarshal(m.Params, &e); err != nil || e.ExitCode == nil || *e.ExitCode != 4 || e.Stdout == nil || e.Stderr == nil ||
			e.StdoutCapReached == nil || e.StderrCapReached == nil || e.OutputDrainTimedOut == nil || *e.OutputDrainTimedOut {
			t.Errorf("%s, %v", m.raw, err)
		}
		if d := c.of("h"); string(d.data[0]) != "hi" || string(d.data[1]) != "no\n" || d.last > m.nth {
			t.Errorf("%q", d.data)
		}
		c.refused("process/kill", `{"processHandle":"h"}`, "no active process…")
	})
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
