package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestAgentChanges checks that edits and runs of a session are reviewed together, and that the repository stays as it is.
func TestAgentChanges(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	p.file(t, "a.txt", "old\n")
	h := connect(t, p.front("mcp", "--config", p.overlaid(t), "--supervisor", daemon(t).Socket, "--tools", "agent"))
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
	p.file(t, "a.txt", "old\n")
	p.file(t, "b.txt", "old\n")
	config, socket := p.overlaid(t), daemon(t).Socket
	h := connect(t, p.front("mcp", "--config", config, "--supervisor", socket, "--tools", "agent"))
	h.run("cat a.txt b.txt; echo mine >a.txt")
	p.file(t, "new.txt", "theirs\n")
	if err := os.Rename(p.repo+"/new.txt", p.repo+"/b.txt"); err != nil {
		t.Fatal(err)
	}
	const news = "changed in the repository since you began: b.txt: changes {action: refresh} takes that"
	h.hears(t, news)
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
	h.hears(t, "changes of an earlier session are not in this one, and are kept")
}

// hears waits until the reply to a command has news. What the supervisor finds out beside a command is in its reply if it comes hardly later
// than the command's end, else in that of a later one.
func (h *host) hears(t *testing.T, news string) {
	t.Helper()
	sandboxtest.Eventually(t, time.Minute, "a reply has "+news, func() bool {
		return strings.Contains(h.agentCall("run", object{"code": "sleep 1; echo done"}), news)
	})
}
