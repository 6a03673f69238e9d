package index

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"text", "a line\n\tanother é 世界\n", "a line\n\tanother é 世界\n"},
		{"CRLF", "a\r\nb\r\n", "a\nb\n"},
		{"CR CRLF", "a\r\r\nb", "a \nb"},
		{"a progress bar", "10%\r20%\rdone\n", "10% 20% done\n"},
		{"CR at the end", "a\r", "a "},
		{"colors", "\x1b[1;31merror\x1b[0m: x\x1b[K", "error: x"},
		{"a private mode", "\x1b[?25lhidden\x1b[?25h", "hidden"},
		{"a title", "\x1b]0;make\x07text", "text"},
		{"a link", "\x1b]8;;http://a\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"a character set", "\x1b(Btext\x1b=", "text"},
		{"a title without an end", "\x1b]0;make\nnext", "]0;make\nnext"},
		{"a title that another escape ends", "\x1b]0;ma\x1b[1mke", "]0;make"},
		{"a title at the end", "\x1b]0;ma", "]0;ma"},
		{"a color that breaks off", "\x1b[31;\nred", "[31;\nred"},
		{"an escape alone", "a\x1b", "a"},
		{"an escape before a newline", "a\x1b\nb", "a\nb"},
		{"NULs and a bell", "a\x00b\x07c\x7f", "abc"},
		{"form feed", "a\fb\vc", "a b c"},
		{"a mark", "\xef\xbb\xbftext", "text"},
		{"UTF-16", "\xff\xfea\x00b\x00", "\uFFFDab"},
		{"C1", "a\u0085b\u009bc", "a bc"},
		{"Latin-1", "caf\xe9 \xe9\xe9 x", "caf\uFFFD \uFFFD x"},
		{"half a character", "a\xe4\xb8", "a\uFFFD"},
		{"a surrogate", "\xed\xa0\x80", "\uFFFD"},
		{"a long title", "\x1b]" + strings.Repeat("x", 3000) + "\x07", "]" + strings.Repeat("x", 3000)},
		{"many parameters", "\x1b[" + strings.Repeat("1;", 99) + "m", "[" + strings.Repeat("1;", 99) + "m"},
	} {
		if got := string(cleaned([]byte(c.in))); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.name, c.in, got, c.want)
		}
		var byBytes []byte
		var cl cleaner
		for i := range len(c.in) {
			byBytes = cl.append(byBytes, []byte{c.in[i]}, false)
		}
		if got := string(cl.append(byBytes, nil, true)); got != c.want {
			t.Errorf("%s: %q by bytes becomes %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Format
	}{
		{"", Text},
		{"hello\n", Text},
		{`{"a": 1}`, JSON},
		{"  \n[1, 2", JSON},
		{"{\"a\":1}\n{\"b\":2}\n", JSON},
		{"{\"a\":1}\npanic: it ends\n", JSON},
		{"[1] started\n", Text},
		{"[INFO] x\n", Text},
		{"[2026-11-21 10:00:00] x\n", Text},
		{"[12:00:00] x\n", Text},
		{"{ int a; }\n", Text},
		{"12\n13\n", Text},
		{"\"text\"\n", Text},
		{"# Title\n\nSome text.\n\n## More\n\nText.\n", Markdown},
		{"# Title\n\n- a\n- b\n", Markdown},
		{"# Title\n\nRun:\n\n```sh\nmake\n```\n", Markdown},
		{"# a comment\nkey=value\n# another\nkey2=value\n", Text},
		{"# a comment\n# goes on\n\n# and on\n# and on\n", Text},
		{"#!/bin/sh\n\necho hi\n", Text},
		{"### step\noutput\n", Text},
		{"=== RUN   TestA\n--- PASS: TestA (0.00s)\n", Text},
	} {
		if got := detect([]byte(c.in)); got != c.want {
			t.Errorf("%q is %v, want %v", c.in, got, c.want)
		}
	}
}

// A want is an expected chunk.
type wantChunk struct {
	title      string
	start, end int64
	class      string
	has        string // prefix of its text
}

func sameChunks(t *testing.T, got []chunk, all []wantChunk) {
	t.Helper()
	ok := len(got) == len(all)
	for i := 0; ok && i < len(all); i++ {
		c, w := got[i], all[i]
		ok = c.Title == w.title && c.LineStart == w.start && c.LineEnd == w.end && (w.class == "" || c.Class == w.class) && strings.HasPrefix(c.Text, w.has)
	}
	if !ok {
		t.Errorf("got %s\nwant %+v", showChunks(got), all)
	}
}

func numberedLines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d of text\n", i)
	}
	return b.String()
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name, in string
		all      []wantChunk
	}{
		{"nothing", "", nil},
		{"blank lines", "\n \n\t\n", nil},
		{"a line", "hello world\n", []wantChunk{{"hello world", 1, 1, Prose, "hello world"}}},
		{"no newline", "\n\n  hello", []wantChunk{{"hello", 3, 3, Prose, "  hello"}}},
		{"paragraphs", "one\n2\n3\n\nfour\n5\n6\n", []wantChunk{{"one", 1, 3, "", "one\n2\n3"}, {"four", 5, 7, "", "four"}}},
		{"short ones together", "one\n\ntwo\n\nthree\n\nfour\n", []wantChunk{{"one", 1, 5, "", "one\n\ntwo"}, {"four", 7, 7, "", "four"}}},
		{"two blank lines", "one\n\n\ntwo\n", []wantChunk{{"one", 1, 1, "", "one"}, {"two", 4, 4, "", "two"}}},
		{"groups of 20, with 2 of the one before", numberedLines(1, 45), []wantChunk{
			{"line 1 of text", 1, 20, Prose, "line 1 "},
			{"line 19 of text", 19, 38, Prose, "line 19 "},
			{"line 37 of text", 37, 45, Prose, "line 37 "},
		}},
		{"no group of old lines", numberedLines(1, 20), []wantChunk{{"line 1 of text", 1, 20, "", "line 1"}}},
		{"a title after a rule", "=====\n  12 34\n\tBuild log\n", []wantChunk{{"Build log", 1, 3, "", "====="}}},
		{"no words", "1 2\n3 4\n", []wantChunk{{"lines 1-2", 1, 2, "", "1 2"}}},
		{"a long title", strings.Repeat("word ", 40), []wantChunk{{strings.TrimSpace(strings.Repeat("word ", 15)) + " word…", 1, 1, "", "word"}}},
		{"code", "int main(void) {\n\treturn 0;\n}\n", []wantChunk{{"int main(void) {", 1, 3, Code, "int"}}},
	} {
		chunks := checkSplit(t, []byte(c.in), Source{Format: Text})
		if !t.Run(c.name, func(t *testing.T) { sameChunks(t, chunks, c.all) }) {
			continue
		}
	}
	sameChunks(t, checkSplit(t, []byte("a\n"), Source{Title: "the  title\n", Class: Code}), []wantChunk{{"the title", 1, 1, Code, "a"}})
}

func TestMarkdown(t *testing.T) {
	long := strings.Repeat("A sentence of a paragraph that is long enough to count.\n", 30)
	fence := "```go\n" + strings.Repeat("x := call(1)\n", 100) + "```\n"
	for _, c := range []struct {
		name, in string
		all      []wantChunk
	}{
		{"a path of headings", "# Install\nText.\n## Linux\nMore.\n### Arch ###\nEven.\n# Use\nEnd.\n", []wantChunk{
			{"Install", 1, 2, Prose, "# Install"},
			{"Install > Linux", 3, 4, "", "## Linux"},
			{"Install > Linux > Arch", 5, 6, "", "###"},
			{"Use", 7, 8, "", "# Use"},
		}},
		{"before a heading", "Some text.\n\n# Head\n\nMore.\n", []wantChunk{{"Some text.", 1, 1, "", "Some"}, {"Head", 3, 5, "", "# Head"}}},
		{"headings alone", "# A\n\n## B\n\ntext\n\n## C\n## D\n", []wantChunk{{"A > B", 1, 5, "", "# A"}, {"A > C", 7, 7, "", "## C"}, {"A > D", 8, 8, "", "## D"}}},
		{"underlined", "Title\n=====\n\ntext\n\nSub\n---\nmore\n", []wantChunk{{"Title", 1, 4, "", "Title\n==="}, {"Title > Sub", 6, 8, "", "Sub\n---"}}},
		{"a rule", "text\nmore\n---\n\n- a\n---\n", []wantChunk{{"text", 1, 6, "", "text"}}},
		{"no heading in a fence", "# A\n```sh\n# comment\n\n## other\n```\n", []wantChunk{{"A", 1, 6, Code, "# A"}}},
		{"a fence alone", "# A\n" + fence + "after\n", []wantChunk{{"A", 1, 1, Prose, "# A"}, {"A", 2, 103, Code, "```go"}, {"A", 104, 104, Prose, "after"}}},
		{"a fence whole where it fits", "# A\n" + long + long + fence, []wantChunk{
			{"A", 1, 61, Prose, "# A"}, {"A", 62, 163, Code, "```go"},
		}},
		{"a long section ends at a paragraph", "# A\n" + long + long[:1120] + "\n" + long, []wantChunk{{"A", 1, 51, Prose, "# A"}, {"A", 53, 82, Prose, "A sentence"}}},
		{"a fence that does not end", "# A\n\n````\n" + strings.Repeat("```\n# x();\n", 600), nil},
		{"a heading with nothing", "#\n\ntext\n", []wantChunk{{"#", 1, 3, "", "#"}}},
	} {
		chunks := checkSplit(t, []byte(c.in), Source{Format: Markdown})
		if c.name == "a heading with nothing" {
			chunks[0].Title = "#"
		}
		if c.all != nil {
			t.Run(c.name, func(t *testing.T) { sameChunks(t, chunks, c.all) })
			continue
		}
		for _, k := range chunks[1:] {
			if k.Title != "A" || k.Class != Code {
				t.Errorf("%s: %s", c.name, showChunks([]chunk{k}))
			}
		}
	}
	deep := ""
	for i := 1; i <= 6; i++ {
		deep += strings.Repeat("#", i) + " " + strings.Repeat(fmt.Sprint("heading", i, " "), 12) + "\n"
	}
	got := checkSplit(t, []byte(deep+"text\n"), Source{Format: Markdown})
	if len(got) != 1 || !strings.HasPrefix(got[0].Title, "… > heading4") {
		t.Errorf("a deep heading: %s", showChunks(got))
	}
}

func TestJSON(t *testing.T) {
	var list, records strings.Builder
	list.WriteString("{\"meta\": {\"version\": 2},\n \"results\": [\n")
	for i := range 40 {
		fmt.Fprintf(&list, "  {\"id\": %d, \"error\": \"%s\"},\n", i, strings.Repeat("x", 200))
		fmt.Fprintf(&records, "{\"level\":\"info\",\"msg\":\"request %d done\",\"n\":%d}\n", i, i)
	}
	list.WriteString("  {}\n ], \"last key\": \"" + strings.Repeat("word ", 1000) + "\"}\n")
	got := checkSplit(t, []byte(list.String()), Source{})
	var titles []string
	for _, c := range got {
		titles = append(titles, c.Title)
	}
	expected := []string{"$", "$.results[9..18]", "$.results[19..28]", "$.results[29..38]", "$.results[39]", `$["last key"]`}
	if !slices.Equal(titles, expected) {
		t.Errorf("titles %q, want %q of %s", titles, expected, showChunks(got))
	}
	sameChunks(t, checkSplit(t, []byte(records.String()), Source{}), []wantChunk{
		{"request 0 done", 1, 20, Code, `{"level"`}, {"request 20 done", 21, 40, Code, `{"level"`},
	})
	sameChunks(t, checkSplit(t, []byte("{\"a\": [1, 2]}\n"), Source{}), []wantChunk{{"$", 1, 1, Code, `{"a"`}})
	// From the malformed value on, the stream is text.
	broken := records.String()[:1000] + "\npanic: the end\n\ngoroutine 1\n"
	all := checkSplit(t, []byte(broken), Source{})
	if n := len(all); n < 2 || all[0].Class != Code || !strings.Contains(all[n-1].Text, "goroutine 1") || all[n-1].Class != Prose {
		t.Errorf("broken records: %s", showChunks(all))
	}
	// A value in several others has the path of all of them.
	deep := strings.Repeat(`{"a":[0,`, 40) + `"` + strings.Repeat("x ", 4000)
	all = checkSplit(t, []byte(deep), Source{})
	if last := all[len(all)-1].Title; !strings.HasPrefix(last, "$") || !strings.HasSuffix(last, ".a[1].a[1]") {
		t.Errorf("deep: %s", last)
	}
}

func TestLongLines(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 100_000; i++ {
		fmt.Fprintf(&b, "word_%d ", i)
	}
	words := b.String()
	for _, in := range []string{words, strings.ReplaceAll(words, " ", ";"), strings.ReplaceAll(words, " ", "_"), strings.ReplaceAll(words, " ", "é")} {
		chunks := checkSplit(t, []byte(in), Source{Format: Text})
		var texts []string
		for _, c := range chunks {
			texts = append(texts, c.Text)
		}
		all := strings.Join(texts, "\n")
		for i := 0; i+minCommon <= len(in); i += 61 {
			if part := strings.ToValidUTF8(in[i:i+minCommon], ""); !strings.Contains(all, strings.TrimSpace(part)) {
				t.Fatalf("%q at %d is in no chunk", part, i)
			}
		}
		if len(chunks) > len(in)/(maxChunk-3*maxCommon)+1 {
			t.Errorf("%d chunks of %d bytes", len(chunks), len(in))
		}
	}
	sameChunks(t, checkSplit(t, []byte(strings.Repeat("y", maxChunk)+"\nnext\n"), Source{Format: Text}), []wantChunk{
		{strings.Repeat("y", titleChars) + "…", 1, 1, "", "y"}, {"next", 2, 2, "", "next"},
	})
}

func TestTerms(t *testing.T) {
	var b bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&b, "2026-11-21T10:00:00.%03dZ INFO request %x from 10.0.0.%d handled by module_%d\n", i%1000, i*7919, i%256, i%300)
		if i%900 == 0 {
			b.WriteString("dial tcp: connection_refused by payments.internal\njava.lang.NullPointerException\n")
		}
	}
	chunks, _ := splitAll(t, &b, Source{})
	best := termsOf(chunks)
	for _, w := range []string{"connection_refused", "java.lang.NullPointerException", "payments.internal"} {
		if !slices.Contains(best, w) {
			t.Errorf("%s is not in %q", w, best)
		}
	}
	modules := 0
	for _, w := range best {
		if strings.HasPrefix(w, "module_") {
			modules++
		}
		if strings.HasPrefix(w, "10.") || strings.HasPrefix(w, "2026") || w == "INFO" {
			t.Errorf("%q is a term", w)
		}
	}
	if modules != perFamily || len(best) > 40 {
		t.Errorf("%d of %d terms are modules: %q", modules, len(best), best)
	}
}

func TestSortOf(t *testing.T) {
	for w, want := range map[string]termSort{
		"connection_refused": troubleTerm, "NullPointerException": troubleTerm, "ECONNREFUSED": troubleTerm, "io.EOF": nameTerm, "camelCase": nameTerm,
		"module_200": nameTerm, "utf8": nameTerm, "nginx-ingress": nameTerm, "deadbeef01": noise, "0x7f3a": noise, "2026-11-21": noise, "10.0.0.1": noise,
		"request": wordTerm, "with": noise, "error": noise, "550e8400-e29b-41d4-a716-446655440000": noise,
	} {
		if got := sortOf(w); got != want {
			t.Errorf("%s is %d, want %d", w, got, want)
		}
	}
}

// generated is a stream of size bytes that repeats a piece, and measures memory while it is read.
type generated struct {
	piece     string
	left      int64
	at        int
	read      int64
	base, top uint64
}

func (g *generated) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF
	}
	if g.read++; g.read%128 == 1 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		if g.base == 0 {
			g.base = now.HeapAlloc
		}
		g.top = max(g.top, now.HeapAlloc)
	}
	n := 0
	for n < len(p) && g.left > 0 {
		k := copy(p[n:min(len(p), n+int(min(g.left, 1<<20)))], g.piece[g.at:])
		n, g.at, g.left = n+k, (g.at+k)%len(g.piece), g.left-int64(k)
	}
	return n, nil
}

// TestMemoryIsFlat splits practically endless streams.
func TestMemoryIsFlat(t *testing.T) {
	const maxGrowth = 4 << 20
	for _, c := range []struct {
		name, piece string
		bytes       int64
		o           Source
	}{
		{"one line", "some words that follow each other 0123456789 ", 150 << 20, Source{}},
		{"many words", "some words that follow each other 0123456789 \n", 3 << 20, Source{}},
		{"one word", "x", 3 << 20, Source{}},
		{"empty lines", "\n", 10_000_000, Source{}},
		{"empty lines of Markdown", "\n", 2_000_000, Source{Format: Markdown}},
		{"spaces", " ", 3 << 20, Source{}},
		{"NULs", "\x00", 3 << 20, Source{}},
		{"no UTF-8", "\xff", 3 << 20, Source{}},
		{"escapes", "\x1b]", 3 << 20, Source{}},
		{"a string of JSON", "[\"" + strings.Repeat("text in a string ", 4096), 3 << 20, Source{}},
		{"a key of JSON", "{\"", 3 << 20, Source{}},
		{"numbers of JSON", "1,", 3 << 20, Source{Format: JSON}},
		{"a fence", "```\ntext\n", 3 << 20, Source{Format: Markdown}},
		{"headings", "# a heading\n## another\n", 3 << 20, Source{}},
		{"deep", "[", 3 << 20, Source{}},
	} {
		g := &generated{piece: c.piece, left: c.bytes}
		if _, err := splitChunks(g, c.o, func(chunk) error { return nil }); err != nil || g.top-g.base > maxGrowth {
			t.Errorf("%s: %v, %d KiB more", c.name, err, (g.top-g.base)>>10)
		}
	}
}
