package artifact

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestView: a reply with both streams: summaries, excerpts and the fallback.
func TestView(t *testing.T) {
	numbers := func(prefix string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s%d\n", prefix, i+1)
		}
		return b.String()
	}
	v := View{Lines: 10, Terms: []string{"OUT50", "err7"}, Fallback: true}
	read := func(w selection, s string) *lineReader {
		r := newLineReader(w)
		_, _ = r.Write([]byte(s))
		r.Close()
		return r
	}
	o, e := v.selection()
	stdout, stderr := read(o, numbers("out", 100)), read(e, numbers("err", 9))
	both := readers{Stdout: stdout, Stderr: stderr}
	if got, want := stdout.Summary(5, 5, true), "out1\nout2\nout3\nout4\nout5\n\n... (90 lines omitted) ...\n\nout96\nout97\nout98\nout99\nout100\n"; got != want {
		t.Errorf("stdout: %q", got)
	}
	if got, want := stderr.Summary(0, 2, false), "err8\nerr9\n"; got != want {
		t.Errorf("stderr: %q", got)
	}
	want := []Excerpt{
		{LineStart: 47, LineEnd: 53, Content: "out47\nout48\nout49\nout50\nout51\nout52\nout53", Source: Stdout},
		{LineStart: 4, LineEnd: 9, Content: "err4\nerr5\nerr6\nerr7\nerr8\nerr9", Source: Stderr},
	}
	if got := both.found(10); !slices.Equal(got, want) {
		t.Errorf("excerpts: %+v", got)
	}
	if got := both.found(1); !slices.Equal(got, want[:1]) {
		t.Errorf("one excerpt: %+v", got)
	}
	if got := both.front(2); !slices.Equal(got, []Excerpt{{1, 2, "out1\nout2", Stdout, true}}) {
		t.Errorf("front: %+v", got)
	}
	if got := (readers{Stdout: read(o, ""), Stderr: stderr}).front(1); !slices.Equal(got, []Excerpt{{1, 1, "err1", Stderr, true}}) {
		t.Errorf("front of stderr: %+v", got)
	}
	if got := (readers{Stderr: read(e, "")}).front(1); len(got) != 0 || got == nil {
		t.Errorf("front of nothing: %+v", got)
	}
	for _, limit := range []int{0, -1} {
		if got := both.found(limit); len(got) != 0 || got == nil {
			t.Errorf("found(%d): %+v", limit, got)
		}
		if got := both.front(limit); len(got) != 0 || got == nil {
			t.Errorf("front(%d): %+v", limit, got)
		}
	}
}
