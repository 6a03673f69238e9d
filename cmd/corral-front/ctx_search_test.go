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

// finds reports whether ctx_search finds want.
func (h *host) finds(want string, arguments object) bool {
	h.t.Helper()
	r := h.ctx("ctx_search", arguments)
	return !r.isError && strings.Contains(r.text, want)
}

// TestCtxIndexHere checks that a job indexes a file of the repository, and that no other file is indexed.
func TestCtxIndexHere(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, "docs/animals.md", "# Zebras\n\nThey are striped.\n\n# Quaggas\n\nThey are gone.\n")
	p.file(t, "-n odd'\nname", "an okapi\n")
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
