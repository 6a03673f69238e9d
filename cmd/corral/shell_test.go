package main

import (
	"errors"
	"fmt"
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

// A conversation is a place in which an agent runs commands: a repository, a directory for its own files, and a supervisor.
type conversation struct {
	*daemon
	repo, own string
	env       []string
}

// converse makes a conversation, with options in the file of the operator.
func converse(t *testing.T, options ...string) *conversation {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("bash"))
	c := &conversation{daemon: serve(t), repo: sandboxtest.OpenDir(t), own: sandboxtest.OpenDir(t)}
	err := errors.Join(
		os.Mkdir(filepath.Join(c.repo, ".git"), 0o755), os.MkdirAll(filepath.Join(c.repo, "sub"), 0o755),
		os.MkdirAll(filepath.Join(c.own, ".claude/shell-snapshots"), 0o755), os.MkdirAll("/etc/corral", 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove("/etc/corral/shell.conf") })
	c.options(t, options...)
	t.Setenv("CORRAL_BIN", filepath.Dir(sandboxtest.Bin(t, "corral")))
	t.Chdir("/") // the agent, which is this process, is in no repository
	c.env = []string{
		path, "HOME=" + c.own, "CLAUDE_CODE_TMPDIR=" + c.own, "ANTHROPIC_API_KEY=sk-secret", "CLAUDE_CODE_MESSAGING_TOKEN=secret",
		"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=e45d42bf-fa3f-439d-a925-eb0cc7f4dfa2", fmt.Sprintf("CLAUDE_PID=%d", os.Getpid()), "TERM=xterm", "OTHER=other",
	}
	return c
}

func (c *conversation) options(t *testing.T, options ...string) {
	t.Helper()
	text := strings.Join(append([]string{"# for tests", "--supervisor " + c.Socket}, options...), "\n")
	if err := os.WriteFile("/etc/corral/shell.conf", []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// command returns corral under the name by which agents call it.
func (c *conversation) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, args...)
	cmd.Args[0], cmd.Dir, cmd.Env = "/usr/local/bin/corral-shell", c.repo, c.env
	return cmd
}

func (c *conversation) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return start(t, c.command(t, args...)).ends(t)
}

// tool runs a command as Claude Code's tool Bash does, and returns the directory in which the next one begins.
func (c *conversation) tool(t *testing.T, text string) (got outcome, next string) {
	t.Helper()
	snapshot, report := filepath.Join(c.own, ".claude/shell-snapshots/snapshot-bash-1-a.sh"), filepath.Join(c.own, "claude-1f-cwd")
	_ = os.Remove(report)
	quoted := "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	got = c.run(t, strings.Replace(textWith(snapshot, report), `'echo "a b"'`, quoted, 1))
	b, _ := os.ReadFile(report)
	return got, string(b)
}

// TestShell: a command runs in the agent's repository, with the user's functions and without the agent's secrets, and its directory is
// reported.
func TestShell(t *testing.T) {
	c := converse(t, "--env-pass OTHER")
	snapshot := filepath.Join(c.own, ".claude/shell-snapshots/snapshot-bash-1-a.sh")
	// A project's settings can set HOME, but not the user's options.
	err := errors.Join(
		os.MkdirAll(filepath.Join(c.own, ".config/corral"), 0o755),
		os.WriteFile(filepath.Join(c.own, ".config/corral/shell.conf"), []byte("--env-pass ANTHROPIC_API_KEY\n"), 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshot, []byte("greet() { echo hello-$1; }\nshopt -s expand_aliases\nalias twice='echo two two'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text, stdout, next string
		code               int
	}{
		{"greet you; twice; pwd; cat; echo made >made", "hello-you\ntwo two\nREPO\n", "REPO\n", 0},
		{"cd sub && exit 7", "", "", 7},
		{"cd sub; false", "", "", 1},
		{"cd sub", "", "REPO/sub\n", 0},
		{"cd /usr", "", "", 0},
		{"ln -s /usr link && cd link", "", "", 0},
		{`cd sub; echo x >&198; pwd() { echo /etc; }`, "", "", 0},
		{`printf '%s|' "it's" 'a"b' "$OTHER" "$TERM" "$ANTHROPIC_API_KEY$CLAUDE_CODE_MESSAGING_TOKEN$CLAUDE_PID" $CLAUDECODE`, `it's|a"b|other|xterm||1|`, "REPO\n", 0},
		{"ls -A OWN 2>/dev/null; echo more >>SNAPSHOT; kill -TERM $$", "", "", 143},
	} {
		in := strings.NewReplacer("REPO", c.repo, "SNAPSHOT", snapshot, "OWN", c.own)
		got, next := c.tool(t, in.Replace(tt.text))
		if got.code != tt.code || got.stdout != in.Replace(tt.stdout) || next != in.Replace(tt.next) {
			t.Errorf("%s: %+v, next %q", tt.text, got, next)
		}
	}
	if got := content(t, filepath.Join(c.repo, "made")); got != "made\n" {
		t.Errorf("the repository has %q", got)
	}
	if got := content(t, snapshot); strings.Contains(got, "more") {
		t.Errorf("the snapshot has %q", got)
	}
	var records strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.State, "audit/*.jsonl"))
	for _, f := range files {
		records.WriteString(content(t, f))
	}
	for _, want := range []string{`"tool":"shell"`, `"session":"e45d42bf-fa3f-439d-a925-eb0cc7f4dfa2"`, fmt.Sprintf(`"request":"claude-%d"`, os.Getpid()), `"runtime":"bash"`, `"code":"`} {
		if !strings.Contains(records.String(), want) {
			t.Errorf("the audit log has no %s", want)
		}
	}
}

// TestShellOthers: texts of hooks and servers have their input and their outputs; calls that cannot run say why, and nothing runs outside.
func TestShellOthers(t *testing.T) {
	c := converse(t)
	victim := filepath.Join(c.own, ".bashrc")
	if err := os.WriteFile(victim, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t, "cat; cd /; cd \"$CLAUDE_PROJECT_DIR\" && echo no >&2; exit 2")
	cmd.Stdin = strings.NewReader(`{"tool": "Bash"}`)
	cmd.Env = append(cmd.Env, "CLAUDE_PROJECT_DIR="+c.repo)
	if got := start(t, cmd).ends(t); got != (outcome{2, `{"tool": "Bash"}`, "no\n"}) {
		t.Errorf("a hook: %+v", got)
	}
	c.run(t, "-c", "echo $0; pwd").want(t, 0, "bash\n"+c.repo+"\n")
	// A hostile repository writes its hooks.
	for _, text := range []string{
		"true && pwd -P >| " + victim, "source " + victim + " 2>/dev/null || true && cat /dev/shm/.corral-snapshot",
		"source " + c.own + "/shell-snapshots/snapshot-x.sh 2>/dev/null || true && true",
	} {
		_ = os.Mkdir(filepath.Join(c.own, "shell-snapshots"), 0o755)
		_ = os.Symlink(victim, filepath.Join(c.own, "shell-snapshots/snapshot-x.sh"))
		if got := c.run(t, text); got.code == 0 || got.stdout != "" {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if got := content(t, victim); got != "before" {
		t.Errorf("the victim has %q", got)
	}
	cmd = c.command(t, "echo ran")
	cmd.Dir = c.own
	if got := start(t, cmd).ends(t); got.code != 126 || got.stdout != "" || !strings.Contains(got.stderr, "is not in a repository of git") {
		t.Errorf("without a repository: %+v", got)
	}
	for _, tt := range []struct {
		option, stderr string
		args           []string
	}{
		{"--supervisor /nowhere", "corral: no supervisor at /nowhere: no such file", []string{"echo ran"}},
		{"--repo /", "/etc/corral/shell.conf: --repo, --cwd", []string{"echo ran"}},
		{"--tty", "/etc/corral/shell.conf: --repo, --cwd", []string{"echo ran"}},
		{"--unknown", "/etc/corral/shell.conf: ", []string{"echo ran"}},
		{"share", "/etc/corral/shell.conf: \"share\" is not an option", []string{"echo ran"}},
		{"--env-pass X", "corral: 2 arguments: must be TEXT, or -c TEXT", []string{"echo", "ran"}},
		{"--env-pass X", "corral: 0 arguments", nil},
		{"--env-pass X", "corral: unknown option \"--share\": options are lines of ~/.config/corral/shell.conf", []string{"--share"}},
	} {
		c.options(t, tt.option)
		if got := c.run(t, tt.args...); got.code != 125 || got.stdout != "" || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%s: %+v", tt.option, got)
		}
	}
	c.options(t)
	if got := c.run(t, "--help"); got.code != 0 || !strings.HasPrefix(got.stdout, "corral shell takes") {
		t.Errorf("%+v", got)
	}
}

// TestShellGuard: a hook that is asked before a tool denies if corral cannot run it to its end. Others have corral's exit code.
func TestShellGuard(t *testing.T) {
	c := converse(t)
	hook := func(event, text string) outcome {
		t.Helper()
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := os.NewFile(uintptr(ends[0]), "hook"), os.NewFile(uintptr(ends[1]), "agent")
		defer theirs.Close()
		if _, err := ours.WriteString(`{"cwd":"/","hook_event_name":"` + event + `","tool_name":"Write"}`); err != nil {
			t.Fatal(err)
		}
		ours.Close()
		cmd := c.command(t, text)
		cmd.Stdin, cmd.SysProcAttr = theirs, &syscall.SysProcAttr{Setpgid: true}
		return start(t, cmd).ends(t)
	}
	for _, tt := range []struct {
		option, text string
		guard, other int
	}{
		{"--memory 64MiB", "grep -q Write", 0, 0},
		{"--memory 64MiB", "exit 7", 7, 7},
		{"--memory 64MiB", "exec tail /dev/zero", 2, 137},
		{"--timeout 0.1s", "sleep 1000", 2, 124},
		{"--supervisor /nowhere", "true", 2, 125},
		{"--network none", "kill -9 $$", 137, 137},
	} {
		c.options(t, tt.option)
		if got := hook("PreToolUse", tt.text); got.code != tt.guard {
			t.Errorf("%s, before a tool: %+v, want %d", tt.text, got, tt.guard)
		}
		if got := hook("PostToolUse", tt.text); got.code != tt.other {
			t.Errorf("%s: %+v, want %d", tt.text, got, tt.other)
		}
	}
}

// TestShellOutput: outputs that are one file keep their order, and come as they are written.
func TestShellOutput(t *testing.T) {
	c := converse(t)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "output"), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := c.command(t, `for i in 1 2 3 4 5 6 7 8; do echo out$i; echo err$i >&2; done; echo ready; read -r line <fifo; yes | head -c 3000000`)
	if err := unix.Mkfifo(filepath.Join(c.repo, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = f, f
	p := start(t, cmd)
	sandboxtest.Eventually(t, time.Minute, "the output is there while the command runs", func() bool { return strings.HasSuffix(content(t, f.Name()), "ready\n") })
	var want strings.Builder
	for i := range 8 {
		fmt.Fprintf(&want, "out%d\nerr%[1]d\n", i+1)
	}
	if got := content(t, f.Name()); got != want.String()+"ready\n" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(filepath.Join(c.repo, "fifo"), []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends(t)
	if got := content(t, f.Name()); len(got) != want.Len()+6+3000000 {
		t.Errorf("%d bytes, the last %q", len(got), got[max(len(got)-100, 0):])
	}
}

// TestShellEnds: a signal ends a stubborn command within a second, and so does the end of the agent. That it has half a second of its own is
// a limit of its job; how long the rest takes depends on the machine.
func TestShellEnds(t *testing.T) {
	c := converse(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		mark := mark()
		text := strings.Join(stubborn(mark)[2:], "")
		p := start(t, c.command(t, text))
		p.ready(t)
		p.signal(t, s)
		if !p.EndsWithin(time.Second + busy) {
			t.Errorf("%v: it does not end", s)
		}
		gone(t, mark)
	}
	if got := corral(t, "audit", "export", "--json", "--state", c.State).stdout; strings.Count(got, `"kill_after_ns":`) != 4 || strings.Count(got, `"kill_after_ns":500000000,`) != 4 {
		t.Errorf("the audit log has other times to end: %s", got)
	}
	for _, call := range []string{`"$1" shell "$2" & wait`, `CLAUDE_PID=$$ sh -c '"$1" shell "$2"; true' sh "$1" "$2" & wait`} {
		mark := mark()
		agent := c.command(t)
		agent.Path, agent.Args = "/bin/bash", []string{"bash", "-c", call, "bash", sandboxtest.Bin(t, "corral"), strings.Join(stubborn(mark)[2:], "")}
		p := start(t, agent)
		p.ready(t)
		p.signal(t, syscall.SIGKILL)
		gone(t, mark)
		p.ends(t)
		ended := c.command(t, "echo ran")
		ended.Env = append(ended.Env, fmt.Sprintf("CLAUDE_PID=%d", p.Process.Pid))
		if got := start(t, ended).ends(t); got.code != 125 || !strings.Contains(got.stderr, "which CLAUDE_PID names, has ended") {
			t.Errorf("a command of an agent that has ended: %+v", got)
		}
	}
}

// TestShellShared: the commands of a conversation share the home directory and, with an overlay, what they change.
func TestShellShared(t *testing.T) {
	for _, option := range []string{"--share", "--workspace overlay"} {
		c := converse(t, option)
		both := make([]*process, 2)
		for n := range both { // which of them opens the session is not decided
			both[n] = start(t, c.command(t, fmt.Sprintf("echo %d >~/%[1]d; echo %[1]d >file%[1]d; cd sub", n)))
		}
		for _, p := range both {
			p.ends(t).want(t, 0, "")
		}
		c.run(t, "cat ~/0 ~/1 file0 file1").want(t, 0, "0\n1\n0\n1\n")
		if _, err := os.Stat(filepath.Join(c.repo, "file0")); (err == nil) != (option == "--share") {
			t.Errorf("%s: the repository's file: %v", option, err)
		}
		all := c.listed(t)
		for id, s := range all {
			if s.Name != "claude-e45d42bf-fa3f-439d-a925-eb0cc7f4dfa2" || s.Repo != c.repo || len(all) != 1 {
				t.Errorf("%s: %+v", option, all)
			}
			c.session(t, "close", id)
		}
		if option != "--share" { // the changes of a session that has ended are still there
			c.run(t, "cat file0").want(t, 0, "0\n")
			sandboxtest.Eventually(t, time.Minute, "it ends again", func() bool {
				for id, s := range c.listed(t) {
					return s.Kept && c.session(t, "close", id, "--discard").code == 0
				}
				return false
			})
		}
		c.env = slices.DeleteFunc(c.env, func(s string) bool { return strings.HasPrefix(s, "CLAUDE_CODE_SESSION_ID=") })
		if got := c.run(t, "echo ran"); got.code != 125 || !strings.Contains(got.stderr, "CLAUDE_CODE_SESSION_ID") {
			t.Errorf("%+v", got)
		}
	}
}

// TestShellRepository: the repository is the agent's own, also in one that is nested in it, and never another one; sensitive paths are
// read-only.
func TestShellRepository(t *testing.T) {
	c := converse(t)
	c.env = slices.DeleteFunc(c.env, func(s string) bool { return strings.HasPrefix(s, "CLAUDE_PID=") }) // the agent is the parent
	if err := os.MkdirAll(filepath.Join(c.repo, "sub/.git/hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`cd sub && %q shell 'pwd; cat ../top; echo x >.git/hooks/pre-commit'; true`, sandboxtest.Bin(t, "corral"))
	if err := os.WriteFile(filepath.Join(c.repo, "top"), []byte("top\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	agent := c.command(t)
	agent.Path, agent.Args = "/bin/bash", []string{"bash", "-c", `(` + script + `)`}
	// The subshell is the parent, and has gone there; the agent has not.
	if got := start(t, agent).ends(t); !strings.HasPrefix(got.stdout, c.repo+"/sub\n") || strings.Contains(got.stdout, "top") {
		t.Errorf("%+v", got)
	}
	agent = c.command(t)
	agent.Path, agent.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf(`env --chdir=sub %q shell 'pwd; cat ../top; echo x >.git/hooks/pre-commit'; true`, sandboxtest.Bin(t, "corral"))}
	got := start(t, agent).ends(t)
	if got.stdout != c.repo+"/sub\ntop\n" || !strings.Contains(got.stderr, "Read-only file system") {
		t.Errorf("%+v", got)
	}
	// A job put a link to another repository of the user where the agent goes on.
	other := filepath.Join(c.own, "other")
	if err := errors.Join(os.MkdirAll(filepath.Join(other, ".git"), 0o755), os.Symlink(other, filepath.Join(c.repo, "away"))); err != nil {
		t.Fatal(err)
	}
	agent = c.command(t)
	agent.Path, agent.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf(`env --chdir=away %q shell 'echo ran'; exit $?`, sandboxtest.Bin(t, "corral"))}
	if got := start(t, agent).ends(t); got.code != exitNoRepo || got.stdout != "" || !strings.Contains(got.stderr, "is not in the agent's repository") {
		t.Errorf("%+v", got)
	}
}
