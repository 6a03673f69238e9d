package ctxtools

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestExcerpt: short sections are shown whole, long ones around their matches.
func TestExcerpt(t *testing.T) {
	long := strings.Repeat("0123456789", 400)
	at := func(from, to int) string { return long[from:to] }
	for _, tt := range []struct {
		name  string
		text  string
		marks [][2]int
		want  string
	}{
		{"short", "a b", [][2]int{{0, 1}}, "a b"},
		{"1,500 characters", strings.Repeat("é", 1500), nil, strings.Repeat("é", 1500)},
		{"no mark", long, nil, at(0, 1500) + "…"},
		{"bad marks", long, [][2]int{{-1, 3}, {5, 5}, {3990, 4001}}, at(0, 1500) + "…"},
		{"at the front", long, [][2]int{{10, 20}}, at(0, 320) + "…"},
		{"in the middle", long, [][2]int{{1000, 1010}}, "…" + at(700, 1310) + "…"},
		{"at the end", long, [][2]int{{3990, 4000}}, "…" + at(3690, 4000)},
		{"two", long, [][2]int{{100, 110}, {2000, 2010}}, at(0, 410) + "\n…\n" + at(1700, 2310) + "…"},
		{"two that overlap, in no order", long, [][2]int{{1500, 1510}, {1000, 1010}}, "…" + at(700, 1810) + "…"},
		{"two that meet", long, [][2]int{{1000, 1010}, {1610, 1620}}, "…" + at(700, 1920) + "…"},
		{"everything", long, [][2]int{{0, 4000}}, long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := excerpt(tt.text, tt.marks); got != tt.want {
				t.Errorf("got  %d bytes %.80q\nwant %d bytes %.80q", len(got), got, len(tt.want), tt.want)
			}
		})
	}
	wide := strings.Repeat("€", 2000) // three bytes each
	for from := range 9 {
		if got := excerpt(wide, [][2]int{{900 + from, 903 + from}}); !utf8.ValidString(got) {
			t.Errorf("from %d: half a character", 900+from)
		}
	}
}
