package artifact

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/test/sandboxtest"
)

// shown returns a line as it must be shown, by the definition.
func shown(l string) string {
	r := []rune(valid(l))
	if len(r) <= MaxLine {
		return string(r)
	}
	return fmt.Sprintf("%s… (+%d) [truncated]", string(r[:MaxLine]), len(r)-MaxLine)
}

func valid(s string) string {
	return string(appendText(nil, []byte(s)))
}

// split returns the lines of a stream, and whether the last one had a newline.
func split(s string) ([]string, bool) {
	if s == "" {
		return nil, false
	}
	whole, terminated := strings.CutSuffix(s, "\n")
	return strings.Split(whole, "\n"), terminated
}

func naiveSummary(s string, head, tail int, omitted bool) string {
	all, terminated := split(s)
	var out []string
	for i, l := range all {
		switch {
		case i < head || i >= len(all)-tail:
			out = append(out, shown(l))
		case omitted && i == head:
			out = append(out, "", fmt.Sprintf("... (%d lines omitted) ...", len(all)-head-tail), "")
		}
	}
	text := strings.Join(out, "\n")
	if terminated && len(out) > 0 {
		text += "\n"
	}
	return text
}

func has(l string, terms []string) bool {
	for _, t := range terms {
		if t != "" && !strings.Contains(t, "\n") && strings.Contains(folded(valid(l)), folded(valid(t))) {
			return true
		}
	}
	return false
}

// folded is the definition of case-insensitive equality, per character: it maps each one to the first equal one.
func folded(s string) string {
	return strings.Map(func(r rune) rune {
		for c := range rune(0x250) { // all characters that the tests use
			if c == r || (c|0x20 == r|0x20 || c >= 0x80 || r >= 0x80) && strings.EqualFold(string(c), string(r)) {
				return c
			}
		}
		return r
	}, s)
}

func naiveExcerpts(s string, terms []string, context, limit int) (out []section) {
	all, _ := split(s)
	for i := 0; i < len(all) && len(out) < limit; i++ {
		if !has(all[i], terms) {
			continue
		}
		from, to := max(0, i-context), min(len(all)-1, i+context)
		var text []string
		for _, l := range all[from : to+1] {
			text = append(text, shown(l))
		}
		out = append(out, section{int64(from + 1), int64(to + 1), []byte(strings.Join(text, "\n"))})
		i = to
	}
	return out
}

func read(w selection, s string, cut func() int) *lineReader {
	v := newLineReader(w)
	for len(s) > 0 {
		n := min(len(s), cut())
		v.write([]byte(s[:n]))
		s = s[n:]
	}
	v.close()
	return v
}

func checkLines(t *testing.T, s string, w selection, cut func() int) {
	t.Helper()
	v := read(w, s, cut)
	all, terminated := split(s)
	if v.n != int64(len(all)) || len(all) > 0 && v.terminated != terminated {
		t.Fatalf("%.200q: %d lines, want %d", s, v.n, len(all))
	}
	for _, omitted := range []bool{true, false} {
		if got, want := v.summary(w.first, w.last, omitted), naiveSummary(s, w.first, w.last, omitted); got != want {
			t.Fatalf("%.200q, first %d, last %d:\n got %.300q\nwant %.300q", s, w.first, w.last, got, want)
		}
	}
	got, want := v.texts.list, naiveExcerpts(s, w.terms, w.context, w.excerpts)
	if !slices.EqualFunc(got, want, func(a, b section) bool {
		return a.start == b.start && a.end == b.end && string(a.text) == string(b.text)
	}) {
		t.Fatalf("%.300q, %q ±%d:\n got %.300q\nwant %.300q", s, w.terms, w.context, fmt.Sprint(got), fmt.Sprint(want))
	}
	var part []string
	for i, l := range all {
		if n := int64(i) + 1; w.from > 0 && n >= w.from && n <= w.to {
			part = append(part, shown(l))
		}
	}
	if got := string(v.part.text); got != strings.Join(part, "\n") {
		t.Fatalf("%.200q, lines %d to %d: %.300q", s, w.from, w.to, got)
	}
}

// TestLines compares lineReader with the definition, on streams of critical pieces split at random.
func TestLines(t *testing.T) {
	sandboxtest.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(5, 6))
	pieces := []string{
		"\n", "\n", "\n", "\n\n\n", "a", "Error", "eRROR", "needle", "nee", "dle", "é", "É", "\u212a", "ſ", "\xff", "\xe2\x82", "€", "\xf0\x9f",
		"plain text of some length\n", strings.Repeat("x", 499), strings.Repeat("é", 501), strings.Repeat("line\n", 40), "\r\n", "\x00",
	}
	terms := []string{"error", "NEEDLE", "É", "k", "s", "\ufffd", "€", "", "a\nb", "line", "no such thing"}
	for range 500 {
		var b strings.Builder
		for range rng.IntN(30) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		w := selection{first: rng.IntN(5), last: rng.IntN(6), context: rng.IntN(4), excerpts: 1 + rng.IntN(3)}
		for range rng.IntN(3) {
			w.terms = append(w.terms, terms[rng.IntN(len(terms))])
		}
		if rng.IntN(2) == 0 {
			w.from = 1 + rng.Int64N(20)
			w.to = w.from + rng.Int64N(20)
		}
		checkLines(t, b.String(), w, func() int { return 1 + rng.IntN(50) })
		checkLines(t, b.String(), w, func() int { return 1 })
		checkLines(t, b.String(), w, func() int { return 1 << 20 })
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb\nError\nc", "error", uint8(2), uint8(3), uint64(1))
	f.Add("\xe2\x82\n\xff", "\ufffd", uint8(0), uint8(1), uint64(2))
	f.Fuzz(func(t *testing.T, s, term string, first, last uint8, seed uint64) {
		for _, r := range s + term {
			if r >= 0x250 && r != utf8.RuneError {
				t.Skip("the definition in this test covers only the characters below U+0250")
			}
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		w := selection{first: int(first % 8), last: int(last % 8), terms: []string{term}, context: int(seed % 4), excerpts: 3}
		checkLines(t, s, w, func() int { return 1 + rng.IntN(20) })
	})
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "é€\U0001f600": "é€\U0001f600",
		"\xff": "\ufffd", "\xff\xfe": "\ufffd\ufffd", "a\x80b": "a\ufffdb",
		"\xe2\x82": "\ufffd", "\xe2\x82a": "\ufffda", "\xf0\x9f\x98": "\ufffd", "\xf0\x9f\x98\xff": "\ufffd\ufffd",
		"\xc0\xaf": "\ufffd\ufffd", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
		// The example of the Unicode standard, table 3-11.
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA": "\ufffd\ufffd\ufffd\ufffdA",
	} {
		if got := valid(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestLineCap: the maximum of a line counts characters, not bytes.
func TestLineCap(t *testing.T) {
	for _, c := range []string{"a", "é", "€", "\U0001f600"} {
		for n, want := range map[int]string{
			500: strings.Repeat(c, 500),
			501: strings.Repeat(c, 500) + "… (+1) [truncated]",
			777: strings.Repeat(c, 500) + "… (+277) [truncated]",
		} {
			v := read(selection{first: 1}, strings.Repeat(c, n), func() int { return 7 })
			if got := v.summary(1, 0, false); got != want {
				t.Errorf("%d of %s: %q", n, c, got)
			}
		}
	}
}

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
	o, e := v.selection()
	stdout, stderr := read(o, numbers("out", 100), func() int { return 11 }), read(e, numbers("err", 9), func() int { return 11 })
	if got, want := stdout.summary(5, 5, true), "out1\nout2\nout3\nout4\nout5\n\n... (90 lines omitted) ...\n\nout96\nout97\nout98\nout99\nout100\n"; got != want {
		t.Errorf("stdout: %q", got)
	}
	if got, want := stderr.summary(0, 2, false), "err8\nerr9\n"; got != want {
		t.Errorf("stderr: %q", got)
	}
	want := []Excerpt{
		{LineStart: 47, LineEnd: 53, Content: "out47\nout48\nout49\nout50\nout51\nout52\nout53", Source: Stdout},
		{LineStart: 4, LineEnd: 9, Content: "err4\nerr5\nerr6\nerr7\nerr8\nerr9", Source: Stderr},
	}
	if got := found(stdout, stderr, 10); !slices.Equal(got, want) {
		t.Errorf("excerpts: %+v", got)
	}
	if got := found(stdout, stderr, 1); !slices.Equal(got, want[:1]) {
		t.Errorf("one excerpt: %+v", got)
	}
	if got := front(stdout, stderr, 2); !slices.Equal(got, []Excerpt{{1, 2, "out1\nout2", Stdout, true}}) {
		t.Errorf("front: %+v", got)
	}
	if got := front(read(o, "", nil), stderr, 1); !slices.Equal(got, []Excerpt{{1, 1, "err1", Stderr, true}}) {
		t.Errorf("front of stderr: %+v", got)
	}
	if got := front(nil, read(e, "", nil), 1); len(got) != 0 || got == nil {
		t.Errorf("front of nothing: %+v", got)
	}
}

// TestGap: after a gap, lines keep their original numbers, and no excerpt reaches across it.
func TestGap(t *testing.T) {
	v := newLineReader(selection{first: 1, last: 3, terms: []string{"hit", "bytes"}, context: 2, excerpts: 5, from: 2, to: 101})
	v.write([]byte("one\nhit\nthree\n"))
	v.gap(97, "... (5 bytes left out) ...")
	v.write([]byte("hit\nlast"))
	v.close()
	if v.n != 102 {
		t.Errorf("%d lines", v.n)
	}
	want := []Excerpt{
		{LineStart: 1, LineEnd: 4, Content: "one\nhit\nthree\n... (5 bytes left out) ...", Source: Stdout},
		{LineStart: 101, LineEnd: 102, Content: "hit\nlast", Source: Stdout},
	}
	if got := found(v, nil, 5); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if v.part.start != 2 || v.part.end != 101 || string(v.part.text) != "hit\nthree\n... (5 bytes left out) ...\nhit" {
		t.Errorf("range: %+v %s", v.part, v.part.text)
	}
	if got := v.lastLines(3); len(got) != 2 || string(got[0].text) != "hit" {
		t.Errorf("%d last lines", len(got))
	}
}

func BenchmarkLines(b *testing.B) {
	chunk := []byte(strings.Repeat("2026-05-01T10:00:00 INFO server: the quick brown fox jumps over 13 lazy dogs at /usr/lib/x\n", 700))
	for _, bc := range []struct {
		name string
		w    selection
		in   []byte
	}{
		{"count", selection{}, chunk},
		{"summary", selection{first: 50, last: 50}, chunk},
		{"ten terms", selection{terms: strings.Split("error fail panic fatal denied refused abort exception warning needle", " "), context: 3, excerpts: 10}, chunk},
		{"no newline", selection{first: 50, last: 50, terms: []string{"error"}, context: 3, excerpts: 10}, []byte(strings.Repeat("x", 64<<10))},
	} {
		b.Run(bc.name, func(b *testing.B) {
			v := newLineReader(bc.w)
			b.SetBytes(int64(len(bc.in)))
			for b.Loop() {
				v.write(bc.in)
			}
		})
	}
}
