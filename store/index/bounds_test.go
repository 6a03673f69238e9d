package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExpiry checks that an expired source is not found even before it is swept, and is removed by the next Add.
func TestExpiry(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	x := openIndex(t, Options{TTL: time.Hour, Now: func() time.Time { return now }})
	add(t, x, Source{Label: "old", Artifact: "art-old"}, "kestrel one\n")
	now = now.Add(40 * time.Minute)
	add(t, x, Source{Label: "young"}, "kestrel two\n")
	if got := sourcesOf(t, x, "kestrel"); !slices.Equal(got, []string{"old#1", "young#1"}) {
		t.Errorf("found in %v", got)
	}
	now = now.Add(40 * time.Minute)
	if got := sourcesOf(t, x, "kestrel"); !slices.Equal(got, []string{"young#1"}) {
		t.Errorf("after 80 minutes: found in %v", got)
	}
	if has, err := x.Has(t.Context(), testBase, "art-old", ""); has || err != nil {
		t.Errorf("has %v, %v", has, err)
	}
	if s := stats(t, x); s.Sources != 1 {
		t.Errorf("stats %+v", s)
	}
	if n := countRows(t, x, "SELECT count(*) FROM found"); n != 2 {
		t.Errorf("%d chunks: a search removed chunks", n)
	}
	add(t, x, Source{Label: "new"}, "another\n")
	if n := countRows(t, x, "SELECT count(*) FROM found"); n != 2 {
		t.Errorf("%d chunks, want young and new", n)
	}
	now = now.Add(24 * time.Hour)
	if f := find(t, x, Query{Text: "kestrel"}); !f.Empty {
		t.Errorf("all expired: %+v", f)
	}
}

// TestTime checks Source.Time.
func TestTime(t *testing.T) {
	x := openIndex(t, Options{})
	at := time.Now().Add(-24 * time.Hour).Truncate(time.Microsecond)
	add(t, x, Source{Label: "l", Time: at}, "kestrel\n")
	if h := find(t, x, Query{Text: "kestrel"}).Hits[0]; !h.Time.Equal(at) {
		t.Errorf("time %v, want %v", h.Time, at)
	}
	add(t, x, Source{Label: "ancient", Time: at.Add(-defaultTTL)}, "osprey\n")
	if got := sourcesOf(t, x, "osprey"); len(got) > 0 {
		t.Errorf("found an expired source: %v", got)
	}
}

// TestQuota checks that the oldest sources are evicted when the quota is exceeded, and that their disk space is freed.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{MaxBytes: 2 << 20})
	text := numbered("w", 12_000) // about 500 KiB
	var names []string
	for range 12 {
		names = append(names, add(t, x, Source{Label: "l"}, text).Name)
		if s := stats(t, x); s.Bytes > 2<<20 {
			t.Fatalf("%d bytes of text", s.Bytes)
		}
	}
	s := stats(t, x)
	if s.Sources < 2 || s.Sources > 4 || s.BySource[0].Name != names[11] || s.BySource[s.Sources-1].Name == names[0] {
		t.Errorf("stats %+v", s)
	}
	if s.Disk > 24<<20 {
		t.Errorf("%d bytes on the disk for %d of text", s.Disk, s.Bytes)
	}
	a := add(t, x, Source{Label: "much"}, strings.Repeat(text, 6))
	if !a.Truncated || a.Sections == 0 {
		t.Errorf("source larger than the quota: %+v", a)
	}
	if s := stats(t, x); s.Sources != 1 || s.Bytes > 2<<20 {
		t.Errorf("stats %+v", s)
	}
	if h := find(t, x, Query{Text: "w17"}).Hits; len(h) == 0 || h[0].Source != "much#1" {
		t.Errorf("hits %+v", h)
	}
}

// TestForgetWords checks that words of removed sources are no longer used for corrections, and are removed.
func TestForgetWords(t *testing.T) {
	now := time.Now()
	x := openIndex(t, Options{TTL: time.Hour, Now: func() time.Time { return now }})
	add(t, x, Source{Label: "l"}, "zanzibar\n")
	now = now.Add(2 * time.Hour)
	for i := range 40 {
		add(t, x, Source{Label: "l"}, fmt.Sprintf("other things %d\n", i))
		now = now.Add(30 * time.Minute)
	}
	if f := find(t, x, Query{Text: "zanzibr"}); len(f.Hits) > 0 || len(f.Corrected) > 0 {
		t.Errorf("corrected to a removed word: %+v", f)
	}
	if n := countRows(t, x, "SELECT count(*) FROM words WHERE word = 'zanzibar'"); n != 0 {
		t.Error("the word is still there")
	}
	if n := countRows(t, x, `SELECT count(*) FROM grams WHERE grams MATCH '"anz"'`); n != 0 {
		t.Error("its trigrams are still there")
	}
}
