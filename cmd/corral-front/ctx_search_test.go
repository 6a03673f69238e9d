package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// noise prints lines without information, with the planted one among them.
func noise(lines int, planted string) string {
	return fmt.Sprintf(`for i in $(seq 1 %d); do echo "INFO request $i served by worker_$((i %% 7))"; [ $i = %d ] && echo '%s'; done; true`,
		lines, lines/2, planted)
}

// finds reports whether ctx_search finds want.
func (h *host) finds(want string, arguments object) bool {
	h.t.Helper()
	r := h.ctx("ctx_search", arguments)
	return !r.isError && strings.Contains(r.text, want)
}

// TestCtxIndexHere checks that a job indexes a file of the repository, and that no other file is indexed.
func TestCtxIndexHere(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, "docs/animals.md", "# Zebras\n\nThey are striped.\n\n# Quaggas\n\nThey are gone.\n", 0o644)
	p.file(t, "-n odd'\nname", "an okapi\n", 0o644)
	if err := errors.Join(
		os.Symlink("/etc/passwd", filepath.Join(p.repo, "out")), os.Symlink("docs/animals.md", filepath.Join(p.repo, "in")),
		syscall.Mkfifo(filepath.Join(p.repo, "pipe"), 0o666),
	); err != nil {
		t.Fatal(err)
	}
	if r := h.ctx("ctx_index", object{"path": "docs/animals.md"}); r.isError || !strings.HasPrefix(r.text, `Indexed 2 sections from "docs/animals.md" into knowledge base (7 lines, `) {
		t.Errorf("%s", r.raw)
	}
	if !h.finds("They are striped.", object{"query": "stripes", "source": "animals.md"}) {
		t.Error("the search does not find it")
	}
	if r := h.ctx("ctx_index", object{"path": "in", "source": "link"}); r.isError || !h.finds("They are gone.", object{"query": "gone", "source": "link"}) {
		t.Errorf("a link within: %s", r.raw)
	}
	if r := h.ctx("ctx_index", object{"path": "-n odd'\nname", "source": "odd"}); r.isError || !h.finds("an okapi", object{"query": "okapi"}) {
		t.Errorf("an odd name: %s", r.raw)
	}
	if r := h.ctx("ctx_index", object{"path": p.repo + "/docs/animals.md", "source": "absolute"}); r.isError {
		t.Errorf("its whole path: %s", r.raw)
	}
	for path, want := range map[string]string{
		"out": "not in the repository", "/etc/passwd": "is outside the repository", "/proc/self/environ": "is outside the repository",
		"docs": "not a regular file", "pipe": "not a regular file", ".": "not a regular file", "none": "No such file or directory", "../app/docs/animals.md": "is outside the repository",
	} {
		if r := h.ctx("ctx_index", object{"path": path}); !r.isError || !strings.Contains(r.text, want) {
			t.Errorf("%s: %s", path, r.raw)
		}
	}
}

// TestCtxExpires checks that output older than the configured lifetime is not found.
func TestCtxExpires(t *testing.T) {
	_, _, h := served(t, "index: {ttl: 3s}\n")
	h.ctx("ctx_index", object{"content": "a zebra"})
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "it is found no more", func() bool {
		return strings.HasPrefix(h.ctx("ctx_search", object{"query": "zebra"}).text, "Knowledge base is empty — ")
	})
}

// TestCtxPrincipals checks that a principal does not find the output of another one's jobs.
func TestCtxPrincipals(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	var sections strings.Builder
	sections.WriteString("principals:\n")
	type client struct{ token, session string }
	clients := map[string]*client{"ada": {}, "bob": {}}
	for name, c := range clients {
		token, hash := config.NewToken()
		c.token = token
		fmt.Fprintf(&sections, "  - {name: %s, token_sha256: \"%x\"}\n", name, hash)
	}
	w := p.web(t, d, sections.String())
	h := &host{t: t}
	call := func(name, tool, arguments string) *ctxReply {
		t.Helper()
		c := clients[name]
		if c.session == "" {
			status, session, _ := w.post(c.token, "", hello)
			if status != http.StatusOK {
				t.Fatalf("%s: status %d", name, status)
			}
			c.session = session
		}
		return h.ctxReply(w.call(c.token, c.session, tool, arguments))
	}
	call("ada", "ctx_index", `{"content":"a secret zebra","source":"notes"}`)
	if r := call("bob", "ctx_search", `{"query":"zebra"}`); !r.isError || !strings.HasPrefix(r.text, "Knowledge base is empty — ") {
		t.Errorf("bob: %s", r.raw)
	}
	call("bob", "ctx_batch_execute", `{"commands":[{"label":"notes","command":"echo an okapi"}]}`)
	if r := call("bob", "ctx_search", `{"query":"zebra"}`); r.text != "## zebra\nNo results found." {
		t.Errorf("bob: %s", r.raw)
	}
	if r := call("bob", "ctx_stats", `{}`); strings.Contains(r.raw, "zebra") || !strings.HasPrefix(r.text, "Knowledge base of app: 1 source, ") {
		t.Errorf("bob: %s", r.raw)
	}
	call("bob", "ctx_purge", `{"confirm":true}`)
	if r := call("ada", "ctx_search", `{"query":"zebra"}`); !strings.Contains(r.text, "a secret zebra") {
		t.Errorf("ada: %s", r.raw)
	}
}

// bulk prints more than 16 MB, with a unique line in the middle.
const bulk = `seq 1 130000 | sed 's/.*/2026-11-21T10:00:00Z INFO request & served by worker_& in & ms, cache warm, upstream well, all as it should be here/'; echo the lone aardvark; ` +
	`seq 1 1000 | sed 's/^/tail /'`

// TestCtxKilled checks that a server that is killed while it indexes leaves an index that the next one can search.
func TestCtxKilled(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	file := p.config(t, "runtime: {max_duration: 5m}\n")
	start := func() *host { return connect(t, p.front("mcp", "--config", file, "--supervisor", d.Socket)) }
	h := start()
	h.ctx("ctx_index", object{"content": "a zebra that stays", "source": "notes"})
	_, answer := h.ask("tools/call", object{"name": "ctx_execute", "arguments": object{"language": "shell", "code": bulk, "intent": "aardvark"}})
	database := filepath.Join(p.dir, "state/corral/index")
	before := sizeOf(t, database)
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "something is being indexed", func() bool { return sizeOf(t, database) > before+256<<10 })
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if a := <-answer; a != nil {
		t.Log("the call was answered before the server was killed")
	}
	<-h.ended
	h = start()
	if !h.finds("a zebra that stays", object{"query": "zebra"}) {
		t.Error("a source from before is not found")
	}
	r := h.ctx("ctx_execute", object{"language": "shell", "code": noise(400, "an okapi"), "intent": "okapi"})
	if r.isError || !strings.Contains(r.text, "an okapi") || !h.finds("an okapi", object{"query": "okapi"}) {
		t.Errorf("%s", r.raw)
	}
	if r = h.ctx("ctx_stats", object{}); r.isError || !strings.Contains(r.text, "notes: 1 section") {
		t.Errorf("%s", r.raw)
	}
}

// sizeOf returns the total size of the files in a directory.
func sizeOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}
