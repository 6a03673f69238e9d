package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestQuotaOfTiny checks that for very small chunks the quota still bounds the disk space.
func TestQuotaOfTiny(t *testing.T) {
	x := openIndex(t, Options{MaxBytes: 1 << 20})
	for range 4 {
		add(t, x, Source{Label: "tiny"}, strings.Repeat("a\n\n", 300_000))
	}
	if s := stats(t, x); s.Disk > 8<<20 {
		t.Errorf("%d bytes on the disk, for %d sections", s.Disk, s.Sections)
	}
	for i := range 1200 { // with nearly no text
		add(t, x, Source{Label: fmt.Sprint("empty", i)}, "")
	}
	if s := stats(t, x); s.Sources > 1<<10 || s.Sources < 900 {
		t.Errorf("%d sources in 1 MiB", s.Sources)
	}
	if labels, sources := countRows(t, x, "SELECT count(*) FROM labels"), countRows(t, x, "SELECT count(*) FROM sources"); labels > sources {
		t.Errorf("%d labels of %d sources", labels, sources)
	}
	checkIntact(t, x)
}

// TestMaxSections checks that chunks beyond the maximum of a source are dropped and reported.
func TestMaxSections(t *testing.T) {
	x := openIndex(t, Options{})
	x.sections = 40
	text := numbered("word", 2000)
	if a := add(t, x, Source{Label: "l"}, text); !a.Truncated || a.Sections != 40 {
		t.Errorf("added %+v", a)
	}
	if f := find(t, x, Query{Text: "word10"}); len(f.Hits) != 1 {
		t.Errorf("found %+v", f)
	}
	x.sources = 4
	for range 6 {
		add(t, x, Source{Label: "l"}, "kestrel\n")
	}
	if s := stats(t, x); s.Sources > 4 || s.BySource[0].Name != "l#7" {
		t.Errorf("stats %+v", s)
	}
}

// TestNamesAreNotReused checks that a name is never reused for another source, and that an existing name is kept.
func TestNamesAreNotReused(t *testing.T) {
	now := time.Now()
	x := openIndex(t, Options{TTL: time.Hour, Now: func() time.Time { return now }})
	for _, want := range []string{"run#1", "run#2", "run#3"} {
		if a := add(t, x, Source{Label: "run"}, "kestrel "+want+"\n"); a.Name != want {
			t.Errorf("name %s, want %s", a.Name, want)
		}
	}
	_, err := x.Add(t.Context(), testBase, Source{Label: "run#2", Fixed: true}, strings.NewReader("osprey\n"))
	if !errors.Is(err, ErrTaken) {
		t.Errorf("a run's name: %v", err)
	}
	for _, text := range []string{"merlin first\n", "merlin second\n"} {
		add(t, x, Source{Label: "run#4", Fixed: true}, text)
	}
	if hits := find(t, x, Query{Text: "merlin"}).Hits; len(hits) != 1 || hits[0].Text != "merlin second" {
		t.Errorf("hits %+v", hits)
	}
	if a := add(t, x, Source{Label: "run"}, "kestrel\n"); a.Name != "run#5" {
		t.Errorf("name %s, want one that is free", a.Name)
	}
	if got := sourcesOf(t, x, "kestrel merlin"); !slices.Equal(got, []string{"run#1", "run#2", "run#3", "run#4", "run#5"}) {
		t.Errorf("found in %v", got)
	}
	now = now.Add(2 * time.Hour)
	add(t, x, Source{Label: "other"}, "kestrel\n")
	if n := countRows(t, x, "SELECT count(*) FROM labels"); n != 1 {
		t.Errorf("%d labels of one source", n)
	}
	if a := add(t, x, Source{Label: "run"}, "kestrel\n"); a.Name != "run#6" {
		t.Errorf("name %s, after others that expired", a.Name)
	}
}

// TestIdle checks that a base that was not written to for longer than TTL is removed without being opened.
func TestIdle(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{})
	add(t, x, Source{Label: "l"}, "kestrel\n")
	old := time.Now().Add(-2 * defaultTTL)
	age := func(names []string) {
		for _, name := range names {
			if err := os.Chtimes(filepath.Join(dir, dirName, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	names := filesOf(t, dir)
	age(names)
	if err := openIn(t, dir, Options{}).Close(); err != nil || len(filesOf(t, dir)) != len(names) {
		t.Errorf("the open files %v became %v (%v)", names, filesOf(t, dir), err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	names = filesOf(t, dir)
	young := Base{Repo: "young"}
	y := openIn(t, dir, Options{})
	if _, err := y.Add(t.Context(), young, Source{Label: "l"}, strings.NewReader("kestrel\n")); err != nil {
		t.Fatal(err)
	}
	age(names)
	openIn(t, dir, Options{})
	gone := func() bool {
		return !slices.ContainsFunc(filesOf(t, dir), func(n string) bool { return !strings.HasPrefix(n, young.Prefix()) })
	}
	sandboxtest.Eventually(t, 20*time.Second, "the idle base goes", gone)
	if f, err := y.Search(t.Context(), young, Query{Text: "kestrel"}); err != nil || len(f.Hits) != 1 {
		t.Errorf("the other base: %+v, %v", f, err)
	}
}

// TestManySources checks that if a query selects very many sources, the newest are searched.
func TestManySources(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "run"}, "kestrel\n")
	err := x.with(t.Context(), testBase, true, func(b *base) error {
		_, err := b.Write.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO sources(name, label, artifact, stream, made, state, cost) SELECT 'run#', '', '', '', ?, ?, 1 FROM n`,
			1<<14, time.Now().UnixNano(), stateReady)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	add(t, x, Source{Label: "run"}, "kestrel\n")
	f := find(t, x, Query{Text: "kestrel", Source: "run"})
	if len(f.Hits) != 1 || f.Hits[0].Source != "run#2" || !f.Cut {
		t.Errorf("found %+v", f)
	}
}
