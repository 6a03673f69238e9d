package index

import (
	"strings"
	"testing"
)

// The fuzz targets check all properties in check for arbitrary input.

func fuzzSplit(f *testing.F, o Source, seeds ...string) {
	for _, s := range append(seeds, textPieces...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 1<<18 {
			checkSplit(t, in, o)
		}
	})
}

func FuzzSplit(f *testing.F) {
	fuzzSplit(f, Source{}, "# a\n\n- b\n- c\n", "{\"a\":1}\ntext\n", "a\x1b[31mb\r\n\r\n\xff",
		".100"+strings.Repeat("A", longestTerm-2)+" ", "\u2003")
}

func FuzzSplitText(f *testing.F) { fuzzSplit(f, Source{Format: Text}, numberedLines(1, 50)) }

func FuzzSplitMarkdown(f *testing.F) {
	fuzzSplit(f, Source{Format: Markdown}, "# a\n## b\n\ntext\n\n```\n# c\n```\nTitle\n---\n", "- a\n  ~~~\n  b\n  ~~~\n", "\u2003", "\n\u2003\n---\n")
}

func FuzzSplitJSON(f *testing.F) {
	fuzzSplit(f, Source{Format: JSON}, `{"a":[1,2,{"b":"c\n"}],"d":null}`, "[1]\n[2]\nx\n", `{"a":tru}`, "[[[]]]\n{}")
}
