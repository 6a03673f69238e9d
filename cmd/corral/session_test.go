package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// session runs a command of corral session at the daemon's socket.
func (d *daemon) session(t *testing.T, args ...string) outcome {
	t.Helper()
	return corral(t, append([]string{"session", args[0], "--supervisor", d.Socket}, args[1:]...)...)
}

// open opens a session and returns its id.
func (d *daemon) open(t *testing.T, args ...string) string {
	t.Helper()
	if !slices.Contains(args, "--disk") {
		args = append(args, "--disk", "256MiB") // so that several fit on a small machine
	}
	got := d.session(t, append([]string{"open"}, args...)...)
	id := strings.TrimSuffix(got.stdout, "\n")
	if got.code != 0 || got.stderr != "" || !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id) {
		t.Fatalf("open %q: %+v", args, got)
	}
	return id
}

// exec runs a line of shell in a session.
func (d *daemon) exec(t *testing.T, id, line string, more ...string) outcome {
	t.Helper()
	args := append([]string{"session", "exec", id, "--supervisor", d.Socket}, more...)
	return corral(t, append(args, "--", "sh", "-c", line)...)
}

// listed returns the open sessions by id.
func (d *daemon) listed(t *testing.T) map[string]sessionJSON {
	t.Helper()
	got := d.session(t, "list", "--json")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	all := map[string]sessionJSON{}
	for line := range strings.Lines(got.stdout) {
		var s sessionJSON
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all[s.ID] = s
	}
	return all
}

func (o outcome) want(t *testing.T, code int, stdout string) {
	t.Helper()
	if o.code != code || o.stdout != stdout {
		t.Errorf("%+v, want %d, %q", o, code, stdout)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestSession: jobs of a session with an overlay see each other's changes, and the repository stays as it is.
func TestSession(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo, d := repository(t), serve(t)
	file := filepath.Join(repo, "a")
	if err := os.WriteFile(file, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := d.open(t, "--repo", repo, "--workspace", "overlay", "--name", "n1", "--disk", "64MiB")
	d.exec(t, id, "cat a; echo after > a; echo new > b").want(t, 0, "before\n")
	d.exec(t, "n1", "cat a b; pwd").want(t, 0, "after\nnew\n"+repo+"\n")
	d.exec(t, id, "exit 7").want(t, 7, "")
	d.exec(t, id, "kill -TERM $$").want(t, 143, "")
	if got := d.exec(t, id, "echo x > a", "--workspace", "readonly"); got.code == 0 {
		t.Errorf("a readonly job of it writes: %+v", got)
	}
	if got := content(t, file); got != "before\n" {
		t.Errorf("the repository has %q", got)
	}
	s := d.listed(t)[id]
	if s.Name != "n1" || s.Repo != repo || s.Workspace != "overlay" || s.Root || s.Kept || s.Jobs != 0 || s.Disk != 64<<20 {
		t.Errorf("%+v", s)
	}
	for _, args := range [][]string{{"ps", "--supervisor", d.Socket}, {"session", "list", "--supervisor", d.Socket}} {
		if got := corral(t, args...); got.code != 0 || !strings.Contains(got.stdout, id) || !strings.Contains(got.stdout, "n1") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	d.session(t, "close", "n1").want(t, 0, id+"\n")
	if s := d.listed(t)[id]; !s.Kept {
		t.Errorf("%+v", s)
	}
	if got := d.session(t, "close", id); got.code != 125 || !strings.Contains(got.stderr, "corral changes show "+id) {
		t.Errorf("%+v", got)
	}
	d.exec(t, id, "cat a").want(t, 0, "after\n") // the session is still open
	sandboxtest.Eventually(t, time.Minute, "it ends again", func() bool { return d.listed(t)[id].Kept })
	d.session(t, "close", id, "--discard").want(t, 0, "")
	if all := d.listed(t); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestSessionWorkingDirectory checks that a working directory in a session may be absolute, as without one.
func TestSessionWorkingDirectory(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	repo := sandboxtest.OpenDir(t)
	if err := os.MkdirAll(filepath.Join(repo, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := d.open(t, "--repo", repo)
	for cwd, want := range map[string]string{"sub": repo + "/sub", repo + "/sub": repo + "/sub", repo: repo} {
		if got := d.exec(t, id, "pwd", "--cwd", cwd); got.stdout != want+"\n" {
			t.Errorf("%s: %+v", cwd, got)
		}
		if got := corral(t, "run", "--session", id, "--cwd", cwd, "--supervisor", d.Socket, "--", "pwd"); got.stdout != want+"\n" {
			t.Errorf("run, %s: %+v", cwd, got)
		}
	}
	want := fmt.Sprintf("corral: working directory \"/etc\" is not in the repository %q\n", repo)
	if got := d.exec(t, id, "pwd", "--cwd", "/etc"); got.code != 125 || got.stderr != want {
		t.Errorf("outside: %+v", got)
	}
}
