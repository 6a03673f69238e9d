package sessions

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/layer"
)

// TestOpeningsBounded: the number of sessions being opened is bounded per user and in all.
func TestOpeningsBounded(t *testing.T) {
	s := &openings{}
	for range MaxUserOpenings {
		if err := s.begin(sandboxtest.Owner, "sessions"); err != nil {
			t.Fatal(err)
		}
	}
	sandboxtest.RefusedAt(t, "one more of a user", s.begin(sandboxtest.Owner, "sessions"), "session", 0)
	n := MaxUserOpenings
	for user := uint32(sandboxtest.Owner + 1); n < MaxOpenings; user++ {
		for k := 0; k < MaxUserOpenings && n < MaxOpenings; k++ {
			if err := s.begin(user, "sessions"); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	sandboxtest.RefusedAt(t, "one more of all", s.begin(1, "sessions"), "session", 0)
	s.end(sandboxtest.Owner)
	if err := s.begin(sandboxtest.Owner, "sessions"); err != nil {
		t.Error(err)
	}
}

// TestExpiresWhileRunning: layers expire while the supervisor runs, and those that are young stay.
func TestExpiresWhileRunning(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := filepath.Join(t.TempDir(), "layers")
	store, err := layer.Open(dir, layer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ks := &keptStore{dir: dir, store: store, retention: time.Hour, log: slog.New(slog.DiscardHandler)}
	old, young := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for id, kept := range map[string]time.Time{old: time.Now().Add(-2 * time.Hour), young: time.Now()} {
		if err := errors.Join(os.WriteFile(ks.path(id+layerSuffix), nil, 0o600), ks.write(&keptLayer{ID: id, Kept: kept})); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var expiring sync.WaitGroup
	expiring.Go(func() { ks.expire(ctx, time.Millisecond) })
	sandboxtest.Settled(t, func() string {
		if sandboxtest.Exists(ks.path(old+layerSuffix)) || sandboxtest.Exists(ks.path(old+keptSuffix)) {
			return "the old layer is there"
		}
		return ""
	})
	stop()
	expiring.Wait()
	if k, err := ks.load(young); err != nil || k.ID != young {
		t.Errorf("the young one: %+v, %v", k, err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// TestKeptLayerDescription: the description of a kept layer has the path of its repository unchanged, whatever bytes are in
// it: changes whose repository is not found again could not be applied.
func TestKeptLayerDescription(t *testing.T) {
	s := &keptStore{dir: t.TempDir()}
	const id = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(s.path(id+layerSuffix), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/srv/app", "/srv/\xff\xe9", "/srv/\n\u202e\"", "/srv/\uFFFD"} {
		if err := s.write(&keptLayer{ID: id, Repo: path}); err != nil {
			t.Fatal(err)
		}
		if k, err := s.load(id); err != nil || k.Repo != path || k.info().Repo != path {
			t.Errorf("%q: %+v, %v", path, k, err)
		}
	}
}
