package index

import (
	"fmt"
	"strings"
	"testing"
)

// TestTiny checks that very many tiny paragraphs and sections are joined without loss, and that a few are not joined.
func TestTiny(t *testing.T) {
	for name, c := range map[string]struct {
		format Format
		unit   string
	}{
		"paragraphs":      {Text, "a\n\n"},
		"apart":           {Text, "a\n\n\n"},
		"lines":           {Text, "a\n"},
		"headings":        {Markdown, "# head\n"},
		"sections":        {Markdown, "# head\n\ntext\n\n"},
		"underlined":      {Markdown, "head\n====\n\ntext\n\n"},
		"deeper sections": {Markdown, "# one\na\n## two\nb\n"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(c.unit, 100_000)
			chunks, _ := splitAll(t, strings.NewReader(text), Source{Format: c.format})
			if maxChunks := maxTiny + 2*len(text)/tinyText; len(chunks) > maxChunks {
				t.Errorf("%d chunks of %d bytes, want at most %d", len(chunks), len(text), maxChunks)
			}
			checkSplit(t, []byte(strings.Repeat(c.unit, 3000)), Source{Format: c.format})
			few, _ := splitAll(t, strings.NewReader(strings.Repeat(c.unit, 100)), Source{Format: c.format})
			if len(few) < 5 {
				t.Errorf("%d chunks of a short text", len(few))
			}
		})
	}
}

// TestTinyTitle checks that joined sections have the title of the first.
func TestTinyTitle(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "# head %d\n\ntext\n\n", i)
	}
	for _, c := range checkSplit(t, []byte(b.String()), Source{Format: Markdown}) {
		if first, _, _ := strings.Cut(c.Text, "\n"); first != "# "+c.Title {
			t.Fatalf("title %q of %q", c.Title, c.Text)
		}
	}
}
