package artifact

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/test/sandboxtest"
	safe "corral/internal/text"
)

// shown returns a line as it must be shown, by the definition.
func shownLine(l string) string {
	r := []rune(validText(l))
	if len(r) <= maxLine {
		return string(r)
	}
	return fmt.Sprintf("%s… (+%d) [truncated]", string(r[:maxLine]), len(r)-maxLine)
}

func validText(s string) string {
	return string(safe.AppendValid(nil, []byte(s)))
}

// split returns the lines of a stream, and whether the last one had a newline.
func splitLines(s string) ([]string, bool) {
	if s == "" {
		return nil, false
	}
	whole, terminated := strings.CutSuffix(s, "\n")
	return strings.Split(whole, "\n"), terminated
}

func naiveSummary(s string, head, tail int, omitted bool) string {
	all, terminated := splitLines(s)
	var out []string
	for i, l := range all {
		switch {
		case i < head || i >= len(all)-tail:
			out = append(out, shownLine(l))
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

func hasTerm(l string, terms []string) bool {
	for _, t := range terms {
		if t != "" && !strings.Contains(t, "\n") && strings.Contains(folded(validText(l)), folded(validText(t))) {
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

func naiveExcerpts(s string, terms []string, context, limit int) (out []Excerpt) {
	all, _ := splitLines(s)
	for i := 0; i < len(all) && len(out) < limit; i++ {
		if !hasTerm(all[i], terms) {
			continue
		}
		from, to := max(0, i-context), min(len(all)-1, i+context)
		var text []string
		for _, l := range all[from : to+1] {
			text = append(text, shownLine(l))
		}
		out = append(out, Excerpt{LineStart: int64(from + 1), LineEnd: int64(to + 1), Content: strings.Join(text, "\n")})
		i = to
	}
	return out
}

func readLines(w selection, s string, cut func() int) *lineReader {
	v := newLineReader(w)
	for len(s) > 0 {
		n := min(len(s), cut())
		_, _ = v.Write([]byte(s[:n]))
		s = s[n:]
	}
	v.Close()
	return v
}

func checkLines(t *testing.T, s string, w selection, cut func() int) {
	t.Helper()
	v := readLines(w, s, cut)
	all, terminated := splitLines(s)
	if v.n != int64(len(all)) || len(all) > 0 && v.terminated != terminated {
		t.Fatalf("%.200q: %d lines, want %d", s, v.n, len(all))
	}
	for _, omitted := range []bool{true, false} {
		if got, want := v.Summary(w.First, w.Last, omitted), naiveSummary(s, w.First, w.Last, omitted); got != want {
			t.Fatalf("%.200q, first %d, last %d:\n got %.300q\nwant %.300q", s, w.First, w.Last, got, want)
		}
	}
	got, want := v.Excerpts(w.Excerpts), naiveExcerpts(s, w.Terms, w.Context, w.Excerpts)
	if !slices.Equal(got, want) {
		t.Fatalf("%.300q, %q ±%d:\n got %.300q\nwant %.300q", s, w.Terms, w.Context, fmt.Sprint(got), fmt.Sprint(want))
	}
	var part []string
	for i, l := range all {
		if n := int64(i) + 1; w.From > 0 && n >= w.From && n <= w.To {
			part = append(part, shownLine(l))
		}
	}
	if got := v.Part().Content; got != strings.Join(part, "\n") {
		t.Fatalf("%.200q, lines %d to %d: %.300q", s, w.From, w.To, got)
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
		w := selection{First: rng.IntN(5), Last: rng.IntN(6), Context: rng.IntN(4), Excerpts: 1 + rng.IntN(3)}
		for range rng.IntN(3) {
			w.Terms = append(w.Terms, terms[rng.IntN(len(terms))])
		}
		if rng.IntN(2) == 0 {
			w.From = 1 + rng.Int64N(20)
			w.To = w.From + rng.Int64N(20)
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
		w := selection{First: int(first % 8), Last: int(last % 8), Terms: []string{term}, Context: int(seed % 4), Excerpts: 3}
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
		if got := validText(in); got != want {
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
			v := readLines(selection{First: 1}, strings.Repeat(c, n), func() int { return 7 })
			if got := v.Summary(1, 0, false); got != want {
				t.Errorf("%d of %s: %q", n, c, got)
			}
		}
	}
}

// TestGap: after a gap, lines keep their original numbers, and no excerpt reaches across it.
func TestGap(t *testing.T) {
	v := newLineReader(selection{First: 1, Last: 3, Terms: []string{"hit", "bytes"}, Context: 2, Excerpts: 5, From: 2, To: 101})
	v.write([]byte("one\nhit\nthree\n"))
	v.Gap(97, "... (5 bytes left out) ...")
	v.write([]byte("hit\nlast"))
	v.Close()
	if v.n != 102 {
		t.Errorf("%d lines", v.n)
	}
	want := []Excerpt{
		{LineStart: 1, LineEnd: 4, Content: "one\nhit\nthree\n... (5 bytes left out) ..."},
		{LineStart: 101, LineEnd: 102, Content: "hit\nlast"},
	}
	if got := v.Excerpts(5); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := v.Part(); got != (Excerpt{LineStart: 2, LineEnd: 101, Content: "hit\nthree\n... (5 bytes left out) ...\nhit"}) {
		t.Errorf("range: %+v", got)
	}
	if got := v.lastLines(3); len(got) != 2 || string(got[0].text) != "hit" {
		t.Errorf("%d last lines", len(got))
	}
}

// TestAtInPieces: splitting a stream in any way does not change its lines and their numbers.
func TestAtInPieces(t *testing.T) {
	text := []byte(strings.Repeat("a\n\nbb\nccc\n", 200))
	for range 50 {
		v := newLineReader(selection{At: []int64{2, 401, 800}, Excerpts: 3, Context: 1})
		for p := text; len(p) > 0; {
			n := min(1+rand.IntN(300), len(p))
			v.write(p[:n])
			p = p[n:]
		}
		v.Close()
		var got []string
		for _, x := range v.Excerpts(3) {
			got = append(got, fmt.Sprintf("%d-%d %q", x.LineStart, x.LineEnd, x.Content))
		}
		if want := []string{`1-3 "a\n\nbb"`, `400-402 "ccc\na\n"`, `799-800 "bb\nccc"`}; !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}
