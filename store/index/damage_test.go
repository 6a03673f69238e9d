package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// rebuilds returns an Options.Rebuild that adds one source and counts its calls in n.
func rebuilds(n *atomic.Int32) func(context.Context, Base, func(Source, io.Reader) error) error {
	return func(_ context.Context, b Base, add func(Source, io.Reader) error) error {
		defer n.Add(1)
		if b != testBase {
			return fmt.Errorf("base %v", b)
		}
		return add(Source{Label: "rebuilt", Time: time.Now().Add(-time.Hour)}, strings.NewReader("kestrel from the artifacts\n"))
	}
}

// filled creates a base with one source in a directory, and closes it.
func filled(t testing.TB, dir string) {
	t.Helper()
	x := openIn(t, dir, Options{})
	add(t, x, Source{Label: "l"}, numbered("kestrel", 3000))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamaged checks that a damaged base is recreated and rebuilt.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"cut":     func(path string) error { return os.Truncate(path, 5000) },
		"no page": func(path string) error { return os.Truncate(path, 100) },
		"something else": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("not a database\n", 1000)), 0o600)
		},
		"header":  func(path string) error { return overwrite(path, 0, []byte("SQLite format 9\x00")) },
		"schema":  func(path string) error { return overwrite(path, 100, make([]byte, 3996)) },
		"version": func(path string) error { return overwrite(path, 60, []byte{0, 0, 0, 99}) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []string{"add", "search"} {
				dir := t.TempDir()
				filled(t, dir)
				old := dbOf(t, dir)
				if err := damage(old); err != nil {
					t.Fatal(err)
				}
				var n atomic.Int32
				x := openIn(t, dir, Options{Rebuild: rebuilds(&n)})
				if first == "add" {
					add(t, x, Source{Label: "new"}, "osprey\n")
				} else {
					find(t, x, Query{Text: "kestrel1"})
				}
				sandboxtest.Eventually(t, 20*time.Second, "the base is filled again", func() bool { return n.Load() > 0 })
				if got := sourcesOf(t, x, "kestrel"); len(got) != 1 || got[0] != "rebuilt#1" {
					t.Errorf("%s: found in %v", first, got)
				}
				if first == "add" && len(sourcesOf(t, x, "osprey")) != 1 {
					t.Error("the source added after the damage is not found")
				}
				if dbOf(t, dir) == old || n.Load() != 1 {
					t.Errorf("%s: the file was not replaced, or was rebuilt %d times", first, n.Load())
				}
				checkIntact(t, x)
			}
		})
	}
}

func overwrite(path string, at int64, with []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(with, at)
	return err
}

// TestFlipped checks that after any modification of bytes operations recover, and that nothing malformed is found.
func TestFlipped(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	whole, err := os.ReadFile(dbOf(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range sandboxtest.Scale(32 / RaceScale) {
		dir := t.TempDir()
		filled(t, dir)
		flipped := append([]byte(nil), whole...)
		for range 1 + round%20 {
			flipped[r.IntN(len(flipped))] ^= byte(1 + r.IntN(255))
		}
		if err := os.WriteFile(dbOf(t, dir), flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		x := openIn(t, dir, Options{})
		for _, query := range []string{"common", "kestrel1234", "kestral77 words", "line has it"} {
			for _, h := range find(t, x, Query{Text: query}).Hits {
				checkHit(t, h)
			}
		}
		_, _ = x.Add(t.Context(), testBase, Source{Label: "more"}, strings.NewReader(numbered("osprey", 2000)))
		if _, err := x.Purge(t.Context(), testBase); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		add(t, x, Source{Label: "new"}, "kestrel\n")
		checkIntact(t, x)
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamageWhileOpen checks that damage is detected while the base is open.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	var n atomic.Int32
	x := openIn(t, dir, Options{Rebuild: rebuilds(&n)})
	for range 3 {
		add(t, x, Source{Label: "l"}, numbered("kestrel", 20_000)) // more than fits into the WAL and the caches
	}
	path := dbOf(t, dir)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(3 * 4096); at < st.Size(); at += 4096 {
		if err := overwrite(path, at, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	sandboxtest.Eventually(t, 20*time.Second, "the damage shows", func() bool {
		for _, query := range []string{"kestrel777", "common line", "kestrle"} {
			find(t, x, Query{Text: query})
		}
		return n.Load() > 0
	})
	if got := sourcesOf(t, x, "kestrel"); len(got) != 1 || got[0] != "rebuilt#1" {
		t.Errorf("found in %v", got)
	}
}

// TestMissingTables: whichever table goes while a base is open, operations end, with an error or without one, and the base
// works again once it is reopened.
func TestMissingTables(t *testing.T) {
	for _, damage := range []string{
		"DROP TABLE sources", "DROP TABLE labels", "DROP TABLE totals", "DELETE FROM totals", "DELETE FROM found",
		"DROP TABLE words", "DELETE FROM words", "DROP TABLE found", "DROP TABLE grams", "UPDATE sources SET made = 'never'",
		"UPDATE found SET content = 'x'", "UPDATE found SET first = -1", "UPDATE totals SET cost = 'much'", "PRAGMA user_version = 1",
	} {
		t.Run(damage, func(t *testing.T) {
			dir := t.TempDir()
			x := openIn(t, dir, Options{})
			add(t, x, Source{Label: "l", Artifact: "h", Stream: "stdout"}, numbered("kestrel", 300))
			err := x.with(t.Context(), testBase, false, func(b *base) error {
				_, err := b.Write.Exec(damage)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range []Query{{Text: "kestrel17"}, {Text: "kestral17x wordz"}, {Text: "common line", Source: "l", Newest: true}} {
				if f, err := x.Search(t.Context(), testBase, q); err == nil {
					for _, h := range f.Hits {
						checkHit(t, h)
					}
				}
			}
			_, _ = x.Has(t.Context(), testBase, "h", "stdout")
			_, _ = x.Stats(t.Context(), testBase)
			for range 2 {
				_, _ = x.Add(t.Context(), testBase, Source{Label: "l", Fixed: true}, strings.NewReader(numbered("osprey", 300)))
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			x = openIn(t, dir, Options{})
			_, _ = x.Search(t.Context(), testBase, Query{Text: "kestrel17"})
			add(t, x, Source{Label: "new"}, "merlin\n")
			if got := sourcesOf(t, x, "merlin"); len(got) != 1 {
				t.Errorf("found in %v", got)
			}
		})
	}
}

// TestPurgeDamaged checks that a damaged base is purged like any other, and is not rebuilt afterwards.
func TestPurgeDamaged(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	if err := os.Truncate(dbOf(t, dir), 5000); err != nil {
		t.Fatal(err)
	}
	x := openIn(t, dir, Options{Rebuild: func(ctx context.Context, _ Base, add func(Source, io.Reader) error) error {
		<-ctx.Done() // a slow rebuild, which Purge must cancel
		return add(Source{Label: "rebuilt"}, strings.NewReader("kestrel\n"))
	}})
	if _, err := x.Purge(t.Context(), testBase); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if names := filesOf(t, dir); len(names) > 0 {
		t.Errorf("files %v", names)
	}
}

// TestPlanted checks that a foreign file in place of a base's file is not followed, is named in the error, and is removed
// by Purge.
func TestPlanted(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	for name, plant := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink(target, path) },
		"hard link": func(path string) error { return os.Link(target, path) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"others'":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"readable":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o644)) },
	} {
		if name == "others'" && os.Geteuid() != 0 {
			continue
		}
		for _, suffix := range []string{".db", ".db" + "-wal", ".lock"} {
			t.Run(name+" "+suffix, func(t *testing.T) {
				if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				filled(t, dir)
				path := strings.TrimSuffix(dbOf(t, dir), ".db") + suffix
				if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				if err := plant(path); err != nil {
					t.Fatal(err)
				}
				if name == "others'" {
					if err := os.Chown(path, 65534, 65534); err != nil {
						t.Fatal(err)
					}
				}
				x := openIn(t, dir, Options{})
				_, err := x.Add(t.Context(), testBase, Source{Label: "l"}, strings.NewReader("kestrel\n"))
				if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
					t.Errorf("error %v", err)
				}
				if _, err := x.Purge(t.Context(), testBase); err != nil {
					t.Fatal(err)
				}
				add(t, x, Source{Label: "l"}, "kestrel\n")
				if text, err := os.ReadFile(target); string(text) != "precious" || err != nil {
					t.Errorf("the target is %q, %v", text, err)
				}
			})
		}
	}
}

// TestPlantedDirectory checks that a link in place of the directory, or a directory that other users can enter, is
// refused.
func TestPlantedDirectory(t *testing.T) {
	elsewhere := t.TempDir()
	for name, plant := range map[string]func(path string) error{
		"link":     func(path string) error { return os.Symlink(elsewhere, path) },
		"file":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"readable": func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := plant(filepath.Join(dir, dirName)); err != nil {
				t.Fatal(err)
			}
			x := openIn(t, dir, Options{})
			if _, err := x.Add(t.Context(), testBase, Source{Label: "l"}, strings.NewReader("kestrel\n")); err == nil {
				t.Error("Add used the directory")
			}
			if _, err := x.Search(t.Context(), testBase, Query{Text: "kestrel"}); err == nil {
				t.Error("Search used the directory")
			}
			if entries, err := os.ReadDir(elsewhere); len(entries) > 0 || err != nil {
				t.Errorf("made %v, %v", entries, err)
			}
		})
	}
}
