package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/front/settings"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/store/index"
)

// newTestIndex returns an index and an artifact store below a state directory.
func newTestIndex(t *testing.T, state string) *knowledge {
	t.Helper()
	open := func() (*os.File, error) { return os.Open(state) }
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	o := &outputs{log: log, state: open}
	k := &knowledge{log: log, state: open, outputs: o}
	t.Cleanup(func() {
		k.close()
		o.close()
	})
	return k
}

var adasBase = index.Base{Repo: "app", Principal: "user:ada"}

// TestKnowledgeIsLazy checks that a search creates nothing, and that opening is tried again after an error.
func TestKnowledgeIsLazy(t *testing.T) {
	state := filepath.Join(t.TempDir(), "none")
	k := newTestIndex(t, state)
	if _, err := k.Search(t.Context(), adasBase, index.Query{Text: "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	found, err := k.Search(t.Context(), adasBase, index.Query{Text: "x"})
	if err != nil || !found.Empty {
		t.Errorf("%+v, %v", found, err)
	}
	if has, err := k.Has(t.Context(), adasBase, "x", ""); has || err != nil {
		t.Errorf("%t, %v", has, err)
	}
	if s, err := k.Stats(t.Context(), adasBase); s.Sources != 0 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("it created %v, %v", left, err)
	}
	if _, err := k.Add(t.Context(), adasBase, index.Source{Label: "a"}, strings.NewReader("a zebra")); err != nil {
		t.Error(err)
	}
	if found, err = k.Search(t.Context(), adasBase, index.Query{Text: "zebra"}); err != nil || len(found.Hits) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	k.close()
	if _, err := k.Search(t.Context(), adasBase, index.Query{Text: "zebra"}); !errors.Is(err, errEnding) {
		t.Errorf("after close: %v", err)
	}
	(*knowledge)(nil).close()
}

// TestKnowledgeRebuilds checks that a damaged base is rebuilt from the stored output of its jobs, and of no others.
func TestKnowledgeRebuilds(t *testing.T) {
	state := t.TempDir()
	handle := keep(t, state, "the zebra is loose\n", "a quagga, too\n") // of user:ada in app
	k := newTestIndex(t, state)
	store, err := k.outputs.opened()
	if err != nil {
		t.Fatal(err)
	}
	refilled := func(b index.Base) (all []string) {
		err := refill(t.Context(), store, b, func(s index.Source, r io.Reader) error {
			text, err := io.ReadAll(r)
			if err == nil {
				all = append(all, s.Label+" "+s.Stream+" "+string(text))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return all
	}
	if got := refilled(adasBase); len(got) != 2 || got[0] != "execute:shell stdout the zebra is loose\n" || got[1] != "execute:shell stderr a quagga, too\n" {
		t.Errorf("%q", got)
	}
	for _, b := range []index.Base{{Repo: "app", Principal: "user:bob"}, {Repo: "other", Principal: "user:ada"}} {
		if got := refilled(b); len(got) > 0 {
			t.Errorf("%+v: %q", b, got)
		}
	}
	full := errors.New("no space left on device")
	if err := refill(t.Context(), store, adasBase, func(index.Source, io.Reader) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	name := filepath.Join(state, "artifacts", handle, "stdout.gz")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-6] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := refilled(adasBase); len(got) != 1 || !strings.Contains(got[0], "quagga") {
		t.Errorf("with a damaged artifact: %q", got)
	}
}

// TestCtxTools checks that the ctx tools are not listed where nothing may run, or where they are disabled.
func TestCtxTools(t *testing.T) {
	repos := []config.Repo{{ID: "app", Path: "/srv/app"}, {ID: "none", Path: "/srv/none", Runtimes: []string{}}}
	for _, tt := range []struct {
		name   string
		change func(c *config.Config)
		repos  string
		tools  int
	}{
		{"usual", func(*config.Config) {}, "app", 9},
		{"switched off", func(c *config.Config) { c.Ctx.Enabled = false }, "", 0},
		{"nothing runs", func(c *config.Config) { c.Runtime.Enabled = false }, "", 0},
		{"no repository", func(c *config.Config) { c.Repos = repos[1:] }, "", 0},
		{"one of them", func(c *config.Config) { c.Ctx.Repo = "app" }, "app", 9},
		{"one in which nothing may be run", func(c *config.Config) { c.Ctx.Repo = "none" }, "", 0},
		{"no index", func(c *config.Config) { c.Index.Enabled = false }, "app", 9},
		{"one job", func(c *config.Config) { c.Runtime.MaxConcurrentJobs = 1 }, "app", 9},
		{"plain", func(c *config.Config) { c.Output.Redact = false }, "app", 9},
	} {
		c := config.Default()
		c.Repos = repos
		tt.change(&c)
		b := &backend{config: c, log: slog.New(slog.DiscardHandler), supervisor: &supervisor.Connection{}, outputs: &outputs{}}
		b.knowledge = newKnowledge(b)
		b.ctx = b.newCtx()
		rules, err := settings.NewPolicy(c)
		if err != nil {
			t.Fatal(err)
		}
		if tools := b.ctxTools(rules); len(tools) != tt.tools || strings.Join(b.ctx.Repos, " ") != tt.repos {
			t.Errorf("%s: %d tools for %q", tt.name, len(tools), b.ctx.Repos)
		}
		if most := max(1, c.Runtime.MaxConcurrentJobs/2); tt.tools > 0 && b.ctx.MaxBackgroundAll != most || b.ctx.Plain == c.Output.Redact {
			t.Errorf("%s: %d jobs in the background, plain %t", tt.name, b.ctx.MaxBackgroundAll, b.ctx.Plain)
		}
		if none := b.ctx.Knowledge == nil; none != !c.Index.Enabled {
			t.Errorf("%s: no index: %t", tt.name, none)
		}
	}
}
