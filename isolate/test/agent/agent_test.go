// Package agent has tests of corral agent from outside, with an API that the tests play.
package agent

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
)

func TestMain(m *testing.M) {
	os.Exit(nettest.InInternet(func() int { return sandboxtest.WithoutInstallation(m) }))
}

// key is the user's. Nothing else on a machine has this text.
const key = "sk-ant-Jq8vT3xW6nB1mK9r"

// ada is the user who calls sudo.
const ada = 1000

// A place is a home directory with keys and a repository, and the APIs of models.
type place struct {
	t          *testing.T
	in         *nettest.Internet
	home, repo string

	mu    sync.Mutex
	steps []string // guarded by mu: commands that the model asks for, the next one first
	got   []asked  // guarded by mu: the requests
	pid   int      // guarded by mu: of corral agent, whose processes are searched for the key at the next request; 0: they were
	has   []string // guarded by mu: the names of processes that had the key, those of jails with a star
}

// An asked is a request of the agent.
type asked struct{ key, body string }

func newPlace(t *testing.T) *place {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("curl"), sandboxtest.Program("tar"))
	in := nettest.NewInternet(t)
	in.Trust(t)
	p := &place{t: t, in: in, home: sandboxtest.OpenDir(t), repo: sandboxtest.OpenDir(t)}
	hosts := slices.Sorted(maps.Keys(apis))
	for _, host := range hosts {
		in.Name(host, "192.0.2.1")
	}
	in.Serve("192.0.2.1:443", p, hosts...)
	keys := filepath.Join(p.home, ".config/corral/keys")
	err := errors.Join(
		os.MkdirAll("/etc/corral", 0o755),
		os.WriteFile("/etc/corral/config.yaml", []byte("version: 1\nnetwork: {private: [192.0.2.1/32]}\n"), 0o644),
		os.MkdirAll(keys, 0o700),
		os.WriteFile(filepath.Join(keys, "anthropic"), []byte(key+"\n"), 0o600),
		os.WriteFile(filepath.Join(keys, "openai"), []byte(key+"\n"), 0o600),
		os.WriteFile(filepath.Join(keys, "google-ai"), []byte(key+"\n"), 0o600),
		os.WriteFile(filepath.Join(keys, "openrouter"), []byte(key+"\n"), 0o600),
		os.WriteFile(filepath.Join(keys, "github-copilot"), []byte(key+"\n"), 0o600),
		os.MkdirAll(filepath.Join(p.home, ".local/bin"), 0o755),
		os.WriteFile(filepath.Join(p.repo, "file"), []byte("one\ntwo\n"), 0o644),
		exec.Command("chown", "-R", fmt.Sprintf("%d:%[1]d", ada), p.home, p.repo).Run(),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove("/etc/corral/config.yaml") })
	return p
}

// install makes a program the agent, in place of the real one.
func (p *place) install(script string) {
	p.t.Helper()
	versions := filepath.Join(p.home, ".local/share/claude/versions")
	link := filepath.Join(p.home, ".local/bin/claude")
	_ = os.Remove(link)
	err := errors.Join(
		os.MkdirAll(versions, 0o755), os.WriteFile(filepath.Join(versions, "1.0"), []byte("#!/bin/sh\n"+script+"\n"), 0o755),
		os.Symlink("../share/claude/versions/1.0", link),
	)
	if err != nil {
		p.t.Fatal(err)
	}
}

// command returns corral agent as sudo starts it.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(sandboxtest.Bin(p.t, "corral"), args...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + p.home, "TERM=xterm",
		fmt.Sprintf("SUDO_UID=%d", ada), fmt.Sprintf("SUDO_GID=%d", ada),
	}
	cmd.Dir = p.repo
	return cmd
}

// run runs corral agent to its end.
func (p *place) run(args ...string) *sandboxtest.Command {
	p.t.Helper()
	c := sandboxtest.Start(p.t, p.command(append([]string{"agent"}, args...)...))
	p.mu.Lock()
	p.pid, p.has = c.Process.Pid, nil
	p.mu.Unlock()
	if !c.EndsWithin(5 * time.Minute) {
		p.t.Fatalf("%q does not end: %.2000q %.2000q", args, c.Out.String(), c.Err.String())
	}
	return c
}

// take returns the requests since the last call.
func (p *place) take() []asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// archive returns what the agent keeps.
func (p *place) archive(agent string) string {
	b, _ := os.ReadFile(filepath.Join(p.home, ".local/state/corral/agents", agent+".tar"))
	return string(b)
}

// kept returns the id of the session whose changes are kept.
func kept(t *testing.T, c *sandboxtest.Command) string {
	t.Helper()
	_, id, ok := strings.Cut(c.Err.String(), "corral: changes: ")
	if !ok {
		t.Fatalf("no changes are kept: %d %q %q", c.Code(), c.Out.String(), c.Err.String())
	}
	return strings.TrimSpace(strings.Split(id, "\n")[0])
}

// ask is what a shell does in the agent's place: a request that has the placeholder where the key belongs, and in its body.
const ask = `curl -sS -o /dev/null -w '%{http_code}\n' -H "X-Api-Key: $ANTHROPIC_API_KEY" -d "all: $(env)" https://api.anthropic.com/v1/messages`

// TestKey: requests have the key, which is nowhere in the jail, also when they repeat the placeholder; other hosts are not reached.
func TestKey(t *testing.T) {
	p := newPlace(t)
	p.install(ask + "; " + ask + `; env; cat /proc/[0-9]*/environ; grep -rs sk-ant- ~ /etc /tmp . ; getent hosts example.org || echo no other host`)
	c := p.run("claude")
	out := c.Out.String()
	if c.Code() != 0 || !strings.HasPrefix(out, "200\n200\n") || !strings.Contains(out, "no other host") || strings.Contains(out, key) {
		t.Errorf("%d %q %q", c.Code(), out, c.Err.String())
	}
	p.searched()
	got := p.take()
	if len(got) != 2 || slices.ContainsFunc(got, func(a asked) bool { return a.key != key || !strings.Contains(a.body, "CORRAL_SECRET=corral-") }) {
		t.Errorf("the API got %q", got)
	}
	if a := p.archive("claude"); strings.Contains(a, key) || !strings.Contains(a, ".claude.json") {
		t.Errorf("the archive has %d bytes, with the key: %v", len(a), strings.Contains(a, key))
	}
}

// TestState: an agent finds what it kept, also what another run has kept meanwhile; --ephemeral has neither.
func TestState(t *testing.T) {
	p := newPlace(t)
	p.install(`cat ~/.claude/* 2>/dev/null; mkdir -p ~/.claude; echo "$1" >~/.claude/"$1"; ln -sf /etc/shadow ~/.claude/link; rm -f ~/.claude/gone; ls ~/.claude`)
	for _, tt := range []struct{ args, want string }{
		{"claude first", "first\nlink\n"},
		{"--ephemeral claude other", "link\nother\n"},
		{"--direct claude second", "first\nfirst\nlink\nsecond\n"},
	} {
		if c := p.run(strings.Fields(tt.args)...); c.Code() != 0 || c.Out.String() != tt.want {
			t.Errorf("%s: %d %q %q, want %q", tt.args, c.Code(), c.Out.String(), c.Err.String(), tt.want)
		}
	}
	// Two at once: the one that ends last keeps what the other one has kept.
	p.install(`mkdir -p ~/.claude; echo x >~/.claude/"$1"; [ "$1" != slow ] || { echo ready; read line; }; ls ~/.claude`)
	slow := p.command("agent", "--stdin", "claude", "slow")
	in, err := slow.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := sandboxtest.Start(t, slow)
	sandboxtest.Eventually(t, time.Minute, "the first one runs", func() bool { return strings.Contains(s.Out.String(), "ready") })
	if c := p.run("claude", "quick"); c.Code() != 0 {
		t.Errorf("%d %q", c.Code(), c.Err.String())
	}
	in.Close()
	if !s.EndsWithin(time.Minute) || s.Code() != 0 {
		t.Fatalf("%d %q", s.Code(), s.Err.String())
	}
	if c := p.run("claude", "last"); c.Out.String() != "first\nlast\nlink\nquick\nsecond\nslow\n" {
		t.Errorf("%q %q", c.Out.String(), c.Err.String())
	}
}

// TestWorkspace: what an agent writes is kept for corral changes; with --direct it is in the repository.
func TestWorkspace(t *testing.T) {
	p := newPlace(t)
	p.install(`echo three >>file; exit 7`)
	c := p.run("claude")
	if b, err := os.ReadFile(filepath.Join(p.repo, "file")); c.Code() != 7 || err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("%d, %v, the file has %q", c.Code(), err, b)
	}
	a := sandboxtest.Start(t, p.command("changes", "apply", kept(t, c)))
	if !a.EndsWithin(time.Minute) || a.Code() != 0 {
		t.Fatalf("%d %q", a.Code(), a.Err.String())
	}
	c = p.run("--direct", "claude")
	if b, err := os.ReadFile(filepath.Join(p.repo, "file")); c.Code() != 7 || err != nil || string(b) != "one\ntwo\nthree\nthree\n" {
		t.Errorf("%d %q, %v, the file has %q", c.Code(), c.Err.String(), err, b)
	}
	if c = p.run("--direct", "--", "sh", "-c", "pwd; ls ~"); c.Code() != 0 || c.Out.String() != p.repo+"\n" {
		t.Errorf("any program: %d %q %q", c.Code(), c.Out.String(), c.Err.String())
	}
}

// TestReview: on a terminal, a person sees the changes at the end, and says what to do with them.
func TestReview(t *testing.T) {
	p := newPlace(t)
	p.install(`stty size; echo three >>file; rm -f new; echo new >new; echo ready; read line; exit 3`)
	for _, tt := range []struct{ answer, want, shows string }{
		{"d\r", "one\ntwo\n", "files changed: 2, lines added: 2, removed: 0"},
		{"k\r", "one\ntwo\n", "changes: "},
		{"v\ra\r", "one\ntwo\nthree\n", "+three"},
	} {
		master, slave := sandboxtest.Terminal(t)
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 101}); err != nil {
			t.Fatal(err)
		}
		var out sandboxtest.Output
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&out, master)
		}()
		shows := func(s string) {
			t.Helper()
			sandboxtest.Eventually(t, time.Minute, fmt.Sprintf("the terminal shows %q", s), func() bool { return strings.Contains(out.String(), s) })
		}
		cmd := p.command("agent", "claude")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		c := sandboxtest.Start(t, cmd)
		slave.Close()
		shows("33 101\r\nready")
		_, _ = master.WriteString("\r")
		shows("[a/d/k/v] ")
		_, _ = master.WriteString(tt.answer)
		if !c.EndsWithin(time.Minute) || c.Code() != 3 {
			t.Errorf("%q: %d %q", tt.answer, c.Code(), out.String())
		}
		<-read
		if b, _ := os.ReadFile(filepath.Join(p.repo, "file")); string(b) != tt.want || !strings.Contains(out.String(), tt.shows) {
			t.Errorf("%q: the file has %q; the terminal shows %q", tt.answer, b, out.String())
		}
		master.Close()
	}
}

// TestDeaths: whichever process of corral is killed, no process of the agent is left. See TestRealDeaths for the rest.
func TestDeaths(t *testing.T) {
	p := newPlace(t)
	p.install(`echo more >>file; echo ready; exec sleep 4321.` + fmt.Sprint(os.Getpid()))
	running := func() (list []int) {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			var pid int
			if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
				continue
			}
			line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if string(line) == fmt.Sprintf("sleep\x004321.%d\x00", os.Getpid()) {
				list = append(list, pid)
			}
		}
		return list
	}
	for _, victim := range []string{"corral", "corrald", "corral-egress", "corral-stub", "sleep"} {
		c := sandboxtest.Start(t, p.command("agent", "claude"))
		sandboxtest.Eventually(t, time.Minute, "the agent runs", func() bool { return strings.Contains(c.Out.String(), "ready") && len(running()) == 1 })
		killed := 0
		for _, pid := range append(below(c.Process.Pid), c.Process.Pid) {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if strings.TrimSpace(string(comm)) == victim && unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
		if killed == 0 {
			t.Errorf("%s: there was none to kill", victim)
		}
		if victim == "corral-egress" && killed > 0 { // another one takes its place, and the agent goes on
			_ = c.Process.Signal(unix.SIGTERM)
		}
		if !c.EndsWithin(time.Minute) {
			t.Errorf("%s: corral does not end", victim)
		}
		sandboxtest.Eventually(t, time.Minute, "no process of the agent is left", func() bool { return len(running()) == 0 })
	}
	if c := p.run("--ephemeral", "--direct", "--", "true"); c.Code() != 0 {
		t.Errorf("afterwards: %d %q", c.Code(), c.Err.String())
	}
}

// below returns the processes that have pid among the processes above them. Some of them end meanwhile.
func below(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(b)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				all = append(append(all, child), below(child)...)
			}
		}
	}
	return all
}
