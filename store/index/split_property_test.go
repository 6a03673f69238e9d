package index

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// split returns the chunks of a text.
func splitAll(t testing.TB, r io.Reader, o Source) ([]chunk, summary) {
	t.Helper()
	var all []chunk
	sum, err := splitChunks(r, o, func(c chunk) error {
		all = append(all, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, sum
}

// cleaned returns a text as clean text.
func cleaned(in []byte) []byte {
	var c cleaner
	return c.append(nil, in, true)
}

// checkSplit checks every property that splitChunks documents.
func checkSplit(t testing.TB, in []byte, o Source) []chunk {
	t.Helper()
	chunks, sum := splitAll(t, bytes.NewReader(in), o)
	text := cleaned(in)
	if err := covered(text, chunks); err != nil {
		t.Fatalf("%v: %v of %.3000q: %.3000s", o.Format, err, in, showChunks(chunks))
	}
	lines := int64(bytes.Count(in, []byte{'\n'}))
	if len(in) > 0 && in[len(in)-1] != '\n' {
		lines++
	}
	if sum.Bytes != int64(len(in)) || sum.Lines != lines {
		t.Fatalf("%+v of %d bytes, %d lines and %d chunks: %q", sum, len(in), lines, len(chunks), in)
	}
	if slow := pieceByPiece(t, in, o); !slices.Equal(slow, chunks) {
		t.Fatalf("%v: %.3000q\nread at once: %.3000s\nby pieces: %.3000s", o.Format, in, showChunks(chunks), showChunks(slow))
	}
	for _, b := range termsOf(chunks) {
		if len(b) > longestTerm || !bytes.Contains(text, []byte(b)) {
			t.Fatalf("term %q of %q", b, in)
		}
	}
	return chunks
}

// termsOf returns the best terms of chunks.
func termsOf(chunks []chunk) []string {
	terms := newTopTerms()
	for _, c := range chunks {
		terms.see(c.Text)
	}
	return terms.Best(maxTerms)
}

// pieceByPiece splits a stream that is read in small pieces.
func pieceByPiece(t testing.TB, in []byte, o Source) []chunk {
	var all []chunk
	s := newSplitter(o, func(c chunk) error {
		all = append(all, c)
		return nil
	})
	for n := 1; len(in) > 0; n = n*3%101 + 1 {
		n = min(n, len(in))
		if err := s.write(in[:n], false); err != nil {
			t.Fatal(err)
		}
		in = in[n:]
	}
	if err := s.write(nil, true); err != nil {
		t.Fatal(err)
	}
	return all
}

func showChunks(chunks []chunk) string {
	var b strings.Builder
	for _, c := range chunks {
		fmt.Fprintf(&b, "\n%d-%d %s %q: %.150q", c.LineStart, c.LineEnd, c.Class, c.Title, c.Text)
	}
	return b.String()
}

// covered checks that each chunk is a substring of the clean text at its line numbers, and that every nonblank part of
// the text is in a chunk.
func covered(text []byte, chunks []chunk) error {
	starts := []int{0, 0} // by line number
	for i, c := range text {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	last := chunk{LineStart: 1, LineEnd: 1}
	end := 0 // everything before is in a chunk or blank
	skip := func() {
		for end < len(text) && blankByte(text[end]) {
			end++
		}
	}
	skip()
	for i, c := range chunks {
		switch {
		case len(c.Text) > maxChunk || !utf8.ValidString(c.Text) || isBlank([]byte(c.Text)):
			return fmt.Errorf("chunk %d has %d bytes", i, len(c.Text))
		case len(c.Title) > maxTitle || !utf8.ValidString(c.Title) || strings.ContainsAny(c.Title, "\n\r\x00\x1b") || c.Title == "":
			return fmt.Errorf("chunk %d has a title %q", i, c.Title)
		case c.Class != Code && c.Class != Prose:
			return fmt.Errorf("chunk %d has a class %q", i, c.Class)
		case c.LineStart < last.LineStart || c.LineEnd < last.LineEnd || c.LineEnd < c.LineStart || int(c.LineEnd) >= len(starts):
			return fmt.Errorf("chunk %d is lines %d to %d, after %d to %d", i, c.LineStart, c.LineEnd, last.LineStart, last.LineEnd)
		case strings.Count(c.Text, "\n") != int(c.LineEnd-c.LineStart):
			return fmt.Errorf("chunk %d is lines %d to %d", i, c.LineStart, c.LineEnd)
		}
		from := starts[c.LineStart]
		line := len(text) - from // a part of a long line
		if int(c.LineStart) < len(starts)-1 {
			line = starts[c.LineStart+1] - from
		}
		at := bytes.LastIndex(text[from:min(len(text), min(end, from+line-1)+len(c.Text))], []byte(c.Text))
		if at < 0 {
			return fmt.Errorf("chunk %d is not in line %d, or something before it is in none", i, c.LineStart)
		}
		end = max(end, from+at+len(c.Text))
		skip()
		last = c
	}
	if end < len(text) {
		return fmt.Errorf("lost: %q", text[end:min(len(text), end+100)])
	}
	return nil
}

// pieces are parts of random streams.
var textPieces = []string{
	"a", "b c", " ", "\t", "\n", "\n\n", "\r\n", "\r", "# head\n", "## sub\n", "title\n===\n", "\n```go\n", "\n```\n", "~~~", "{", "}",
	"[", "]", ",", ":", `"key": `, `"text"`, `{"a":1}`, `"\"`, "12", "true", "\x00", "\x1b[31m", "\x1b]0;title\x07", "\x1b", "\x1b]8;;x",
	"\xff", "é", "\xc3", "\xef\xbb\xbf", "世界", "func main() {", "- item\n", "| a | b |\n", "error: connection_refused\n", "\v", "\x85",
	strings.Repeat("word ", 300), strings.Repeat("x", 5000), strings.Repeat("é", 1500), strings.Repeat("\n", 50),
	strings.Repeat(`{"n":[1,2,{"deep":"value"}]},`, 60), strings.Repeat("line\n", 45), strings.Repeat(" ", 4200), strings.Repeat("[", 250),
}

func TestSplitKeepsItsPromises(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		var in []byte
		for range 1 + r.IntN(40) {
			in = append(in, textPieces[r.IntN(len(textPieces))]...)
		}
		for _, f := range []Format{Auto, Text, Markdown, JSON} {
			checkSplit(t, in, Source{Format: f})
		}
	}
}

// TestJSONIsCovered splits mostly valid documents.
func TestJSONIsCovered(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var b bytes.Buffer
		for range 1 + r.IntN(5) {
			randomJSON(&b, r, 0, r.IntN(2) == 0)
			b.WriteByte('\n')
		}
		in := b.Bytes()
		if r.IntN(3) == 0 {
			in = in[:r.IntN(len(in))]
		}
		if r.IntN(3) == 0 {
			in[r.IntN(len(in))] = "}]\",:x\n\\"[r.IntN(8)]
		}
		checkSplit(t, in, Source{})
		checkSplit(t, in, Source{Format: JSON})
	}
}

func randomJSON(b *bytes.Buffer, r *rand.Rand, depth int, pretty bool) {
	space := func(depth int) {
		if pretty {
			b.WriteString("\n" + strings.Repeat("  ", depth))
		}
	}
	kind := r.IntN(4)
	if depth == 0 {
		kind = r.IntN(2)
	}
	n := r.IntN(16 / (depth + 1))
	switch {
	case depth > 5 || kind == 2:
		fmt.Fprintf(b, `"value %d \" of \\ %s"`, r.IntN(1000), strings.Repeat("é ", r.IntN(40)*r.IntN(2)*r.IntN(30)))
	case kind == 3:
		fmt.Fprint(b, []any{1, -2.5e9, true, nil, false}[r.IntN(3)])
	case kind == 0:
		b.WriteByte('[')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			space(depth + 1)
			randomJSON(b, r, depth+1, pretty)
		}
		space(depth)
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			space(depth + 1)
			fmt.Fprintf(b, `"key_%d":`, i)
			randomJSON(b, r, depth+1, pretty)
		}
		space(depth)
		b.WriteByte('}')
	}
}

func TestSplitStopsAtErrors(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	_, err := splitChunks(strings.NewReader(strings.Repeat("a line\n", 1000)), Source{}, func(chunk) error {
		n++
		return stop
	})
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d chunks", err, n)
	}
	broken := errors.New("broken")
	n = 0
	sum, err := splitChunks(io.MultiReader(strings.NewReader("read before\n"), iotest.ErrReader(broken)), Source{}, func(chunk) error {
		n++
		return nil
	})
	if !errors.Is(err, broken) || n != 1 || sum.Lines != 1 {
		t.Errorf("%v after %d chunks, %+v", err, n, sum)
	}
	if _, err = splitChunks(idleReader{}, Source{}, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that has nothing: %v", err)
	}
}

type idleReader struct{}

func (idleReader) Read([]byte) (int, error) { return 0, nil }
