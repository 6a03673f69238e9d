package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/front/cli"
	"corral/internal/test/sandboxtest"
	"corral/mcp/agent"
)

// TestStartChangesNothing checks that starting a server and listing its tools leaves no files: hosts do this only to
// look.
func TestStartChangesNothing(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	before := files(t, p.dir)
	h := connect(t, p.front("mcp", "--repo", p.repo, "--supervisor", d.Socket))
	tools := h.must("tools/list", object{}).Result.Tools
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if len(tool.Description) > 2<<10 {
			t.Errorf("%s: the description has %d bytes", tool.Name, len(tool.Description))
		}
	}
	if want := definitions(t); !slices.Equal(names, want) {
		t.Errorf("tools %q", names)
	}
	if after := files(t, p.dir); !slices.Equal(before, after) {
		t.Errorf("files were created: before %q, after %q", before, after)
	}
	if o := h.shell("pwd"); o.out() != p.repo+"\n" {
		t.Errorf("%+v", o)
	}
}

// definitions returns the names of the tools whose definitions are published, except those for agents, sorted.
func definitions(t *testing.T) []string {
	t.Helper()
	dir := filepath.Join(sandboxtest.ModuleRoot(t), "mcp", "testdata", "definitions")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range entries {
		if name := strings.TrimSuffix(file.Name(), ".json"); !slices.Contains(agent.Names(), name) {
			names = append(names, name)
		}
	}
	return names
}

// files returns all paths below dir but sockets.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket == 0 && !strings.Contains(path, "/of-") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDottedNames checks that calls may use either form of a name, and that the option selects the listed one.
func TestDottedNames(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	h := connect(t, p.front("mcp", "--repo", p.repo, "--supervisor", d.Socket, "--tool-names", "dotted"))
	tools := h.must("tools/list", object{}).Result.Tools
	var names []string
	for _, tool := range tools {
		if strings.Contains(tool.Name, ".") {
			names = append(names, tool.Name)
		}
	}
	if want := []string{"code.sandbox.starlark.run", "sdl.runtime.execute", "sdl.runtime.queryOutput"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for _, name := range []string{"sdl.runtime.execute", "runtime_execute"} {
		a := h.must("tools/call", object{"name": name, "arguments": object{"repoId": "app", "runtime": "shell", "code": "true"}})
		if o := h.outcome(a); o.Status != "success" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestEmbedded checks that root's server starts a supervisor and drops root, and that the server stays when its supervisor is killed. The next
// supervisor removes what the killed one left.
func TestEmbedded(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	root := func(args ...string) *exec.Cmd {
		cmd := p.front(args...)
		cmd.Path, cmd.Args[0] = sandboxtest.Bin(t, "corral-front"), sandboxtest.Bin(t, "corral-front")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	h := connect(t, root("mcp", "--repo", p.repo))
	b, err := os.ReadFile("/proc/" + itoa(h.cmd.Process.Pid) + "/status")
	if err != nil || !strings.Contains(string(b), "NoNewPrivs:\t1\n") || strings.Contains(string(b), "\nUid:\t0\t") {
		t.Errorf("it runs as root: %v\n%s", err, b)
	}
	if o := h.shell("echo hello; id -u"); o.Status != "success" || !strings.HasPrefix(o.out(), "hello\n") || o.ArtifactHandle == nil {
		t.Fatalf("%+v", o)
	}
	// If its supervisor dies, calls fail and the server stays.
	list := sandboxtest.Children(t, h.cmd.Process.Pid)
	for _, pid := range list {
		kill(t, itoa(pid))
	}
	if len(list) == 0 {
		t.Fatal("it has no child")
	}
	sandboxtest.Eventually(t, 20*time.Second, "the server knows", func() bool { return h.shell("true").Code != "" })
	if o := h.shell("echo again"); o.Code != "UNAVAILABLE" || !strings.Contains(o.Message, "supervisor") {
		t.Errorf("%s", o.text)
	}
	h.must("ping", object{})
	left := func() (all []string) {
		for _, pid := range list {
			all = append(all, sandboxtest.Leftovers("embedded-"+itoa(pid))...)
		}
		return all
	}
	if len(left()) == 0 {
		t.Error("the supervisor that was killed left nothing to remove")
	}
	if daemon(t); len(left()) > 0 {
		t.Errorf("another supervisor does not remove %q", left())
	}
}

// TestStartUnserved checks that a server for a directory that the supervisor does not serve ends at its start, and says
// why.
func TestStartUnserved(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	other := filepath.Join(p.dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil { // belongs to root
		t.Fatal(err)
	}
	unserved := func(args ...string) string {
		t.Helper()
		cmd := p.front(append([]string{"mcp", "--supervisor", d.Socket}, args...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != cli.Failure {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, dir := range []string{other, "/usr"} {
		if out := unserved("--repo", p.repo, "--repo", dir); !strings.Contains(out, "cannot be served: ") || strings.Contains(out, p.repo) {
			t.Errorf("%s: %s", dir, out)
		}
	}
	config := func(repos ...string) string {
		path := filepath.Join(p.dir, fmt.Sprintf("unserved-%d.yaml", serial.Add(1)))
		text := "version: 1\nrepos:\n"
		for n, repo := range repos {
			text += fmt.Sprintf("  - {id: r%d, path: %s}\n", n, repo)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if out := unserved("--config", config(other)); !strings.Contains(out, "cannot be served: ") {
		t.Errorf("%s", out)
	}
	h := connect(t, p.front("mcp", "--supervisor", d.Socket, "--config", config(other, p.repo)))
	sandboxtest.Eventually(t, time.Minute, "the log names the one that is not served", func() bool {
		return strings.Contains(h.log.String(), "not served") && strings.Contains(h.log.String(), other)
	})
	if o := h.execute(object{"repoId": "r1", "runtime": "shell", "code": "true"}); o.Status != "success" {
		t.Errorf("%+v", o)
	}
}
