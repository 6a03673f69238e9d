package chunk

import (
	"strings"
	"testing"
)

// The fuzz targets check all properties in check for arbitrary input.

func fuzz(f *testing.F, o Options, seeds ...string) {
	for _, s := range append(seeds, pieces...) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 1<<18 {
			check(t, in, o)
		}
	})
}

func FuzzSplit(f *testing.F) {
	fuzz(f, Options{}, "# a\n\n- b\n- c\n", "{\"a\":1}\ntext\n", "a\x1b[31mb\r\n\r\n\xff",
		".100"+strings.Repeat("A", longestTerm-2)+" ", "\u2003")
}

func FuzzSplitText(f *testing.F) { fuzz(f, Options{Format: Text}, numbered(1, 50)) }

func FuzzSplitMarkdown(f *testing.F) {
	fuzz(f, Options{Format: Markdown}, "# a\n## b\n\ntext\n\n```\n# c\n```\nTitle\n---\n", "- a\n  ~~~\n  b\n  ~~~\n", "\u2003", "\n\u2003\n---\n")
}

func FuzzSplitJSON(f *testing.F) {
	fuzz(f, Options{Format: JSON}, `{"a":[1,2,{"b":"c\n"}],"d":null}`, "[1]\n[2]\nx\n", `{"a":tru}`, "[[[]]]\n{}")
}
