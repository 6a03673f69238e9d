package index

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSearch checks that no query text is an error, and that hits are well-formed.
func FuzzSearch(f *testing.F) {
	x := openCorpus(f)
	for _, query := range []string{"connection refused", `"a b" AND c*`, "databse", "接続", "\xff\x00", `""" OR "`, "ConnectionPool acquireLease"} {
		f.Add(query, "", false)
	}
	f.Add("the", "ref", true)
	f.Fuzz(func(t *testing.T, query, source string, newest bool) {
		found, err := x.Search(t.Context(), testBase, Query{Text: query, Source: source, Newest: newest})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range found.Hits {
			checkHit(t, h)
		}
		if found.Matched < len(found.Hits) {
			t.Errorf("matched %d, %d hits", found.Matched, len(found.Hits))
		}
	})
}

// checkHit checks properties of every hit.
func checkHit(t testing.TB, h Hit) {
	t.Helper()
	if !utf8.ValidString(h.Text) || !utf8.ValidString(h.Title) || h.Text == "" || !strings.Contains(h.Text, h.Line) {
		t.Errorf("hit %+v", h)
	}
	if h.LineNumber < h.LineStart || h.LineNumber > h.LineEnd {
		t.Errorf("line %d of %d to %d", h.LineNumber, h.LineStart, h.LineEnd)
	}
	end := 0
	for _, m := range h.Marks {
		if m[0] < end || m[1] <= m[0] || m[1] > len(h.Text) {
			t.Errorf("marks %v of %d bytes", h.Marks, len(h.Text))
		}
		end = m[1]
	}
}
