package store

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/config"
	"corral/internal/test/mcptest"
	"corral/store/index"
)

// newTestIndex returns a knowledge base and an artifact store below a state directory.
func newTestIndex(t *testing.T, state string) (*Knowledge, *Artifacts) {
	t.Helper()
	open := func() (*os.File, error) { return os.Open(state) }
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	a := NewArtifacts(config.Default(), log, open, nil)
	k := NewKnowledge(config.Default(), log, open, a)
	t.Cleanup(func() {
		k.Close()
		a.Close()
	})
	return k, a
}

var adasBase = index.Base{Repo: "app", Principal: "user:ada"}

// TestKnowledgeIsLazy checks that a search creates nothing, and that opening is tried again after an error.
func TestKnowledgeIsLazy(t *testing.T) {
	state := filepath.Join(t.TempDir(), "none")
	k, _ := newTestIndex(t, state)
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
	k.Close()
	if _, err := k.Search(t.Context(), adasBase, index.Query{Text: "zebra"}); !errors.Is(err, errClosed) {
		t.Errorf("after close: %v", err)
	}
	(*Knowledge)(nil).Close()
}

// TestKnowledgeRebuilds checks that a damaged base is rebuilt from the stored output of its jobs, and of no others.
func TestKnowledgeRebuilds(t *testing.T) {
	state := t.TempDir()
	handle := mcptest.Keep(t, state, "the zebra is loose\n", "a quagga, too\n") // of user:ada in app
	_, a := newTestIndex(t, state)
	store, err := a.store.get()
	if err != nil {
		t.Fatal(err)
	}
	refilled := func(b index.Base) (all []string) {
		err := Refill(t.Context(), store, b, func(s index.Source, r io.Reader) error {
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
	if err := Refill(t.Context(), store, adasBase, func(index.Source, io.Reader) error { return full }); !errors.Is(err, full) {
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
