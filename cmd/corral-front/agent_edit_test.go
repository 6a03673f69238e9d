package main

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestAgentEdit checks that an edit changes what the next call sees, and that nothing is written that only stands for a secret.
func TestAgentEdit(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "app.py", "def total(items):\n    return sum(items) + 1\n", 0o644)
	h := p.agentHost(t, "")
	if got := h.agentCall("edit", object{"path": "app.py", "old": "sum(items) + 1", "new": "sum(items)"}); !strings.Contains(got, "edited app.py: +1 -1 lines\n") ||
		!strings.Contains(got, "-    return sum(items) + 1\n+    return sum(items)\n") {
		t.Errorf("%q", got)
	}
	if got := h.run("cat app.py"); got != "def total(items):\n    return sum(items)\n" {
		t.Errorf("the next call: %q", got)
	}
	for _, tt := range []struct {
		arguments object
		want      string
	}{
		{object{"file_path": "app.py", "old_string": "nothing like it", "new_string": "x"}, "error: old was not found in app.py"},
		{object{"path": "app.py", "old": "s", "new": "x"}, "error: old occurs 3 times in app.py, on lines 1, 2, 2"},
		{object{"path": "../x", "old": "", "new": "x"}, "leads out of the repository"},
		{object{"path": "app.py", "old": "total", "new": "[REDACTED:secret]"}, "stands for a secret"},
		{object{"path": "app.py"}, "old or patch is required"},
		{object{"path": "app.py", "patch": "@@ -1,2 +1,2 @@\n def sum(items):\n-    return 1\n+    return 2\n"}, "this hunk does not fit app.py"},
	} {
		if got := h.agentCall("edit", tt.arguments); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: %q", tt.arguments, got)
		}
	}
	if got := h.agentCall("edit", object{"patch": "--- a/app.py\n+++ b/app.py\n@@ -1,1 +1,2 @@\n+# sums\n def total(items):\n"}); !strings.HasPrefix(got, "edited app.py: +1 -0") {
		t.Errorf("%q", got)
	}
	const several = "--- a/app.py\n+++ b/app.py\n@@ @@\n-# sums\n+# totals\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+pass\n--- a/gone.py\n+++ b/gone.py\n@@ @@\n-x\n+y\n"
	if got := h.agentCall("edit", object{"patch": several}); !strings.HasPrefix(got, "error: edited app.py: +1 -1") ||
		!strings.Contains(got, "\ncreated new.py: 1 line, 5 bytes\n") || !strings.Contains(got, "\ngone.py was not changed: gone.py does not exist") {
		t.Errorf("a patch of several files: %q", got)
	}
	if got := h.run("head -1 app.py; cat new.py"); got != "# totals\npass\n" {
		t.Errorf("after that: %q", got)
	}
	if got := h.agentCall("changes", object{}); !strings.Contains(got, "on the repository itself") {
		t.Errorf("%q", got)
	}
}

// TestAgentChanges checks that edits and runs of a session are reviewed together, and that the repository stays as it is.
func TestAgentChanges(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "a.txt", "old\n", 0o644)
	h := connect(t, p.front("mcp", "--config", p.overlaid(t, ""), "--supervisor", daemon(t).Socket, "--tools", "agent"))
	if got := h.agentCall("changes", object{}); got != "[no changes]" {
		t.Errorf("at first: %q", got)
	}
	if got := h.agentCall("edit", object{"path": "a.txt", "old": "old", "new": "new"}); !strings.HasPrefix(got, "edited a.txt") || !strings.Contains(got, "[1 file changed, not applied]") {
		t.Errorf("%q", got)
	}
	h.run("mkdir d; seq 20000 >d/long; cat a.txt")
	if got := h.agentCall("changes", object{"action": "list"}); !strings.Contains(got, "modified a.txt\n") || !strings.Contains(got, "added    d/long\n") ||
		!strings.HasSuffix(got, "[3 changes, not applied]") {
		t.Errorf("%q", got)
	}
	if got := h.agentCall("changes", object{"action": "diff", "path": "a.txt"}); !strings.Contains(got, "-old\n+new\n") || strings.Contains(got, "long") {
		t.Errorf("%q", got)
	}
	got := h.agentCall("changes", object{"action": "diff"})
	_, handle, _ := strings.Cut(got, "output handle ")
	if len(got) > 20<<10 || handle == "" {
		t.Fatalf("%d bytes, ends with %q", len(got), got[max(0, len(got)-200):])
	}
	if got := h.agentCall("output", object{"handle": strings.TrimRight(handle, "]\n"), "terms": []string{"+19999"}}); !strings.Contains(got, "+19999") {
		t.Errorf("%q", got)
	}
	if b, err := os.ReadFile(p.repo + "/a.txt"); err != nil || string(b) != "old\n" {
		t.Errorf("on the host: %q, %v", b, err)
	}
}

// TestAgentBeside: a person changes the repository while an agent works in an overlay of it. The next reply says so, a refresh takes it,
// and a server that is started again says that changes are kept.
func TestAgentBeside(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "a.txt", "old\n", 0o644)
	p.file(t, "b.txt", "old\n", 0o644)
	config, socket := p.overlaid(t, ""), daemon(t).Socket
	h := connect(t, p.front("mcp", "--config", config, "--supervisor", socket, "--tools", "agent"))
	h.run("cat a.txt b.txt; echo mine >a.txt")
	p.file(t, "new.txt", "theirs\n", 0o644)
	if err := os.Rename(p.repo+"/new.txt", p.repo+"/b.txt"); err != nil {
		t.Fatal(err)
	}
	const news = "changed in the repository since you began: b.txt: changes {action: refresh} takes that"
	if got := h.agentCall("run", object{"code": "sleep 1; echo done"}); !strings.Contains(got, news) {
		t.Errorf("%q", got)
	}
	if got := h.agentCall("run", object{"code": "echo done"}); strings.Contains(got, "changed in the repository") {
		t.Errorf("again: %q", got)
	}
	if got := h.agentCall("changes", object{}); !strings.Contains(got, "modified a.txt\n") || !strings.Contains(got, news) {
		t.Errorf("%q", got)
	}
	if got := h.agentCall("changes", object{"action": "refresh"}); !strings.HasPrefix(got, "newer    b.txt\n[you now see") {
		t.Errorf("%q", got)
	}
	if got := h.agentCall("run", object{"code": "cat a.txt b.txt"}); !strings.HasPrefix(got, "mine\ntheirs\n") {
		t.Errorf("after the refresh: %q", got)
	}
	h.run("echo also >c.txt")
	if got := h.agentCall("changes", object{"action": "revert", "path": "a.txt"}); !strings.HasPrefix(got, "reverted modified a.txt\n") {
		t.Errorf("%q", got)
	}
	if got := h.agentCall("run", object{"code": "cat a.txt c.txt"}); !strings.HasPrefix(got, "old\nalso\n") {
		t.Errorf("after the revert: %q", got)
	}
	h.to.Close()
	<-h.ended
	h = connect(t, p.front("mcp", "--config", config, "--supervisor", socket, "--tools", "agent"))
	if got := h.agentCall("run", object{"code": "sleep 1; ls"}); !strings.Contains(got, "changes of an earlier session are not in this one, and are kept") {
		t.Errorf("another server: %q", got)
	}
}

// TestAgentEditParallel checks that calls that edit the same file at the same time all take effect.
func TestAgentEditParallel(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "f", "a0\nb0\nc0\nd0\ne0\nf0\ng0\nh0\n", 0o644)
	h := p.agentHost(t, "")
	var all sync.WaitGroup
	for _, name := range strings.Split("abcdefgh", "") {
		all.Go(func() {
			if got := h.agentCall("edit", object{"path": "f", "old": name + "0", "new": name + "1"}); !strings.HasPrefix(got, "edited f") {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
	if got := h.run("cat f; ls -A | grep -c corral"); !strings.HasPrefix(got, "a1\nb1\nc1\nd1\ne1\nf1\ng1\nh1\n0\n") {
		t.Errorf("%q", got)
	}
}

// TestAgentEditServers checks that agents of two servers that edit the same file at the same time lose nothing of each other, and that
// a file without a final newline stays one.
func TestAgentEditServers(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "f", "a0\nb0\nc0\nd0\ne0\nf0\ng0\nlast", 0o644)
	hosts := []*host{p.agentHost(t, ""), p.agentHost(t, "")}
	var all sync.WaitGroup
	for n, name := range strings.Split("abcdefg", "") {
		all.Go(func() {
			if got := hosts[n%2].agentCall("edit", object{"path": "f", "old": name + "0", "new": name + "1"}); !strings.HasPrefix(got, "edited f") {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
	if got := hosts[0].agentCall("edit", object{"path": "f", "old": "last", "new": "end"}); !strings.HasPrefix(got, "edited f") {
		t.Errorf("%q", got)
	}
	if got, err := os.ReadFile(p.repo + "/f"); string(got) != "a1\nb1\nc1\nd1\ne1\nf1\ng1\nend" {
		t.Errorf("%q, %v", got, err)
	}
	if names, err := os.ReadDir(p.repo); err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "corral") }) {
		t.Errorf("left over: %v, %v", names, err)
	}
}
