package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// A ran is the reply of sandbox_exec.
type ran struct {
	Stdout, Stderr string
	ExitCode       int   `json:"exit_code"`
	Duration       int64 `json:"exec_duration_ms"`

	error string // the text of an error
}

func ranOf(t *testing.T, a *response) *ran {
	t.Helper()
	if len(a.Result.Content) != 1 {
		t.Fatalf("%+v", a.Result)
	}
	text := a.Result.Content[0].Text
	r := &ran{}
	if a.Result.IsError {
		r.error = text
	} else if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%.300s: %v", text, err)
	}
	return r
}

// sandbox calls sandbox_exec.
func (h *host) sandbox(arguments object) *ran {
	h.t.Helper()
	return ranOf(h.t, h.must("tools/call", object{"name": "sandbox_exec", "arguments": arguments}))
}

// sh runs a line of shell in the session.
func (h *host) sh(line string) *ran {
	h.t.Helper()
	return h.sandbox(object{"command": line})
}

// want compares a reply.
func (r *ran) want(t *testing.T, code int, stdout string) {
	t.Helper()
	if r.error != "" || r.ExitCode != code || r.Stdout != stdout {
		t.Errorf("%+.600v", *r)
	}
}

// TestSandbox checks what lasts for a session and what for a call, and how commands end.
func TestSandbox(t *testing.T) {
	_, _, h := served(t, "")
	h.sh("echo one > /home/x; echo two > /etc/y; mkdir -p /usr/local/bin; echo three > /usr/local/bin/z; chmod +x /usr/local/bin/z; echo four > /tmp/w; mkdir /new; cd /new; export A=b; sleep 1000 &").want(t, 0, "")
	h.sh("cat /home/x /etc/y /usr/local/bin/z /tmp/w; ls -d /new; pwd; echo \"A=$A\"; pgrep sleep").want(t, 1, "one\ntwo\nthree\nfour\n/new\n/\nA=\n")
	h.sandbox(object{"args": []string{"sh", "-c", `echo "$0 $1"`, "a b", "*"}}).want(t, 0, "a b *\n")
	h.sandbox(object{"command": "cat", "stdin": "given"}).want(t, 0, "given")
	h.sandbox(object{"command": "cat"}).want(t, 0, "")
	h.sandbox(object{"command": "pwd", "working_directory": "/new"}).want(t, 0, "/new\n")
	if r := h.sandbox(object{"command": "pwd", "working_directory": "/nowhere"}); !strings.Contains(r.error, "/nowhere") {
		t.Errorf("%+v", *r)
	}
	for _, tt := range []struct {
		arguments object
		code      int
	}{
		{object{"command": "exit 3"}, 3},
		{object{"command": "nonesuch"}, 127},
		{object{"args": []string{"nonesuch"}}, 127},
		{object{"command": "/etc/passwd"}, 126},
		{object{"args": []string{"/etc/passwd"}}, 126},
		{object{"command": "kill -SEGV $$"}, 139},
	} {
		if r := h.sandbox(tt.arguments); r.error != "" || r.ExitCode != tt.code {
			t.Errorf("%v: %+v", tt.arguments, *r)
		}
	}
	r := h.sandbox(object{"command": "echo lost; (trap '' TERM; sleep 1000) & sleep 1000", "timeout": 1})
	if r.ExitCode != 124 || r.Stdout != "" || r.Stderr != "[command timed out after 1s]" {
		t.Errorf("%+v", *r)
	}
	h.sh("pgrep sleep").want(t, 1, "")
}

// TestSandboxUser checks that an ordinary user owns the root file system, and sees no private files of the host.
func TestSandboxUser(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, "here", "of the repository")
	h.sh("cat "+p.repo+"/here; echo x >> "+p.repo+"/here; stat -c %u / /etc /usr/bin /home | uniq; id -u").want(t, 0, "of the repository1000\n1000\n")
	h.sh("echo '#!/bin/sh' > /usr/bin/true; echo echo changed >> /usr/bin/true; /usr/bin/true; cat /etc/shadow; chown 0:1 /home; mount -t tmpfs x /mnt; chmod u+s /usr/bin/env; test -u /usr/bin/env; grep CapEff /proc/self/status; ls /root /sys/kernel").
		want(t, 2, "changed\nCapEff:\t0000000000000000\n")
	if b, err := os.ReadFile("/usr/bin/true"); err != nil || !strings.HasPrefix(string(b), "\x7fELF") {
		t.Errorf("the host's program: %.20q, %v", b, err)
	}
}

// emptied deletes everything that an agent can delete, and returns what it then sees of the repository.
func (p *place) emptied(t *testing.T, h *host) {
	t.Helper()
	p.file(t, "README", "text\n")
	p.file(t, ".git/HEAD", "ref: refs/heads/main\n")
	h.sh("rm -rf "+p.repo+"/* "+p.repo+"/.git; echo new > "+p.repo+"/new; ls -A "+p.repo).want(t, 0, "new\n")
	h.sh("cat "+p.repo+"/new").want(t, 0, "new\n")
}

// real returns the names in the repository on the host.
func (p *place) real(t *testing.T) string {
	t.Helper()
	list, err := os.ReadDir(p.repo)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestSandboxDeletes checks that an agent that deletes everything does not touch the real repository, and that its
// changes are kept for review.
func TestSandboxDeletes(t *testing.T) {
	p, d, h := served(t, "")
	p.emptied(t, h)
	if got := p.real(t); got != ".git README" {
		t.Errorf("the repository has %q", got)
	}
	if text := h.sandboxDescription(); !strings.Contains(text, p.repo+" and is a copy-on-write copy") {
		t.Errorf("%q", text)
	}
	h.to.Close()
	<-h.ended
	if got := p.kept(t, d); len(got) != 1 {
		t.Errorf("kept: %q", got)
	}
}

// TestSandboxRepositoryReplaced checks that after the repository's directory was removed and created again, the next
// command has a new session on the new directory, and the reply says so. While there is no directory, the reply says
// that, without an internal error.
func TestSandboxRepositoryReplaced(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, "a", "old\n")
	h.sh("cat "+p.repo+"/a; echo x > /home/x").want(t, 0, "old\n")
	if err := os.RemoveAll(p.repo); err != nil {
		t.Fatal(err)
	}
	a := h.must("tools/call", object{"name": "sandbox_exec", "arguments": object{"command": "ls " + p.repo}})
	if code := errorOf(t, a); a.Result.IsError && code != "UNAVAILABLE" {
		t.Errorf("without a repository: %s, %s", code, a.Result.Structured)
	}
	if err := errors.Join(os.Mkdir(p.repo, 0o755), os.Chown(p.repo, p.uid, p.uid)); err != nil {
		t.Fatal(err)
	}
	p.file(t, "a", "new\n")
	r := h.sh("cat " + p.repo + "/a")
	r.want(t, 0, "new\n")
	if !strings.Contains(r.Stderr, "the previous session was ended") {
		t.Errorf("%q", r.Stderr)
	}
	h.sh("cat "+p.repo+"/a").want(t, 0, "new\n")
}

// errorOf returns the code of a tool's error, "" for another result.
func errorOf(t *testing.T, a *response) string {
	t.Helper()
	var e struct{ Code string }
	if a.Result.IsError {
		if err := json.Unmarshal(a.Result.Structured, &e); err != nil {
			t.Fatalf("%s: %v", a.Result.Structured, err)
		}
	}
	return e.Code
}

// TestSandboxWorkspaces checks that only the operator's configuration makes the repository writable or read-only.
func TestSandboxWorkspaces(t *testing.T) {
	p, d, h := served(t, "sandbox: {workspace: direct}\n")
	p.emptied(t, h)
	if got := p.real(t); got != "new" {
		t.Errorf("the repository has %q", got)
	}
	if text := h.sandboxDescription(); !strings.Contains(text, "is the real directory") || !strings.Contains(text, p.repo) {
		t.Errorf("%q", text)
	}
	reads := connect(t, p.front("mcp", "--config", p.config(t, "sandbox: {workspace: readonly}\n"), "--supervisor", d.Socket))
	if r := reads.sh("rm " + p.repo + "/new"); r.ExitCode != 1 || !strings.Contains(r.Stderr, "Read-only file system") {
		t.Errorf("%+v", *r)
	}
	if text := reads.sandboxDescription(); !strings.Contains(text, "is read-only") {
		t.Errorf("%q", text)
	}
}

// sandboxDescription returns the description of sandbox_exec.
func (h *host) sandboxDescription() string {
	h.t.Helper()
	for _, tool := range h.must("tools/list", object{}).Result.Tools {
		if tool.Name == "sandbox_exec" {
			return tool.Description
		}
	}
	h.t.Fatal("no tool sandbox_exec")
	return ""
}

// TestSandboxStreams checks streams that make other implementations hang.
func TestSandboxStreams(t *testing.T) {
	_, _, h := served(t, "")
	h.sh("true")
	whole := strings.Repeat("0123456789abcde\n", 1_900_000/16)
	h.sandbox(object{"command": "cat", "stdin": whole}).want(t, 0, whole)
	h.sandbox(object{"command": "true", "stdin": whole[:1_000_000]}).want(t, 0, "")
	h.sh("head -c 2097152 /dev/zero | tr '\\0' x").want(t, 0, strings.Repeat("x", 2<<20))
	const much = "[ output limit exceeded (2097152 bytes). Command terminated. No output returned. Re-run with head, tail, or grep to manage output size.]"
	for _, line := range []string{"yes", "yes >&2", "head -c 2097152 /dev/zero; echo; sleep 1000"} {
		if r := h.sh(line); r.ExitCode != 1 || r.Stdout != "" || r.Stderr != much {
			t.Errorf("%s: %d, %d bytes, %.300q", line, r.ExitCode, len(r.Stdout), r.Stderr)
		}
	}
	h.sh("pgrep yes").want(t, 1, "")
	h.sh(`printf 'a\377b'`).want(t, 0, "a\uFFFDb")
}

// TestSandboxLazy checks that listing the tools opens no session, and that nothing is left when the server ends.
func TestSandboxLazy(t *testing.T) {
	p, d, h := served(t, "")
	h.must("tools/list", object{})
	h.shell("true")
	if list := p.sessions(t, d); len(list) != 0 {
		t.Errorf("sessions without a command: %q", list)
	}
	h.sh("echo x > /home/x")
	if list := p.sessions(t, d); len(list) != 1 {
		t.Errorf("sessions: %q", list)
	}
	h.to.Close()
	<-h.ended
	sandboxtest.Eventually(t, 10*time.Second, "the session is still there", func() bool { return len(p.sessions(t, d)) == 0 })
}

// sessions returns the sessions of the place's user.
func (p *place) sessions(t *testing.T, d *sandboxtest.Supervisor) []string {
	t.Helper()
	program := filepath.Join(p.dir, "corral")
	if _, err := os.Stat(program); err != nil {
		if err := sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), program); err != nil {
			t.Fatal(err)
		}
	}
	cmd := p.front("session", "list", "--json", "--supervisor", d.Socket)
	cmd.Path = program
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// TestSandboxHTTP checks that each session of the protocol has a root file system of its own, which ends with the
// session or when it is idle.
func TestSandboxHTTP(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	token, hash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("sandbox: {session_timeout: 1s}\nprincipals:\n  - {name: all, token_sha256: \"%x\"}\n", hash))
	_, one, _ := w.post(token, "", hello)
	_, two, _ := w.post(token, "", hello)
	sh := func(session, line string) *ran {
		arguments, _ := json.Marshal(object{"command": line})
		return ranOf(t, w.call(token, session, "sandbox_exec", string(arguments)))
	}
	sh(one, "echo one > /home/x; cat /home/x").want(t, 0, "one\n")
	sh(two, "ls /home/x").want(t, 2, "")
	sandboxtest.Eventually(t, 20*time.Second, "idle sessions are still there", func() bool { return len(p.sessions(t, d)) == 0 })
	// A command that lasts keeps the new session from expiring between the others, however slow the machine is.
	const expired = "corral: the previous session expired: no job used it for its idle time (sandbox.session_timeout, http.session_idle); " +
		"this is a new one, and files from earlier calls are gone\n"
	var lasting sync.WaitGroup
	lasting.Go(func() { sh(one, "until [ -e /home/end ]; do sleep 0.05; done").want(t, 0, "") })
	sandboxtest.Eventually(t, 20*time.Second, "the command runs", func() bool {
		return strings.Contains(strings.Join(p.sessions(t, d), ""), `"jobs":1,`)
	})
	r := sh(one, "ls /home/x")
	if r.want(t, 2, ""); !strings.HasSuffix(r.Stderr, expired) {
		t.Errorf("%q", r.Stderr)
	}
	if r = sh(one, "touch /home/end"); r.Stderr != "" {
		t.Errorf("reported twice: %q", r.Stderr)
	}
	lasting.Wait()
}

// TestSandboxSettings checks the settings of the configuration.
func TestSandboxSettings(t *testing.T) {
	p, d, h := served(t, "sandbox: {timeout: 2s, max_timeout: 3s, output_limit: 1KiB, partial_output: true}\n")
	r := h.sandbox(object{"command": "echo some; echo more >&2; sleep 1000"})
	if r.ExitCode != 124 || r.Stdout != "some\n" || r.Stderr != "more\n[command timed out after 2s]" {
		t.Errorf("%+v", *r)
	}
	if r = h.sandbox(object{"command": "echo some", "timeout": 4}); r.error != "" || r.Stdout != "some\n" || r.Stderr != "corral: timeout cut to 3s, the maximum\n" {
		t.Errorf("%+v", *r)
	}
	if r = h.sandbox(object{"command": "true", "timeout": 3}); r.error != "" || r.Stderr != "" {
		t.Errorf("%+v", *r)
	}
	if r = h.sandbox(object{"command": "sleep 1000", "timeout": 4}); r.ExitCode != 124 ||
		r.Stderr != "[command timed out after 3s]\ncorral: timeout cut to 3s, the maximum" {
		t.Errorf("%+v", *r)
	}
	for _, tool := range h.must("tools/list", object{}).Result.Tools {
		if tool.Name == "sandbox_exec" && !strings.Contains(string(tool.InputSchema), `"maximum":3,`) && !strings.Contains(string(tool.InputSchema), `"maximum":3}`) {
			t.Errorf("the schema has another maximum: %s", tool.InputSchema)
		}
	}
	if r = h.sh("head -c 1025 /dev/zero"); !strings.Contains(r.Stderr, "(1024 bytes)") {
		t.Errorf("%+v", *r)
	}
	for _, sections := range []string{"sandbox: {enabled: false}\n", "runtime: {enabled: false}\n", "runtime: {runtimes: [python]}\n"} {
		other := connect(t, p.front("mcp", "--config", p.config(t, sections), "--supervisor", d.Socket))
		for _, tool := range other.must("tools/list", object{}).Result.Tools {
			if tool.Name == "sandbox_exec" {
				t.Errorf("%s: the tool is listed", sections)
			}
		}
	}
	only := connect(t, p.front("mcp", "--config", p.config(t, ""), "--tools", "sandbox_exec", "--supervisor", d.Socket))
	if tools := only.must("tools/list", object{}).Result.Tools; len(tools) != 1 || tools[0].Name != "sandbox_exec" {
		t.Errorf("%+v", tools)
	}
}
