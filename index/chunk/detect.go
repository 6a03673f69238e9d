package chunk

import "bytes"

// detect says what a stream is by its first clean text.
func detect(b []byte) Format {
	switch {
	case isJSON(b):
		return JSON
	case isMarkdown(b):
		return Markdown
	}
	return Text
}

// isJSON says whether b begins with an object or an array that is right as far as b goes, or that ends with its line.
func isJSON(b []byte) bool {
	if t := bytes.TrimLeft(b, " \t\n"); len(t) == 0 || t[0] != '{' && t[0] != '[' {
		return false
	}
	s := newSplitter(Options{}, func(Chunk) error { return nil })
	j := newJSONText(s)
	s.form = j
	_, _ = j.take(b, false) // nothing here fails
	return s.form == form(j) || j.scan.ended
}

// How many lines of Markdown's kinds are enough.
const enoughMarks = 3

// isMarkdown says whether b has a heading that stands alone, or a fenced block, and enough of what Markdown has beside.
// A heading has a blank line before it, or none at all: what has a comment sign on line after line is a program's.
func isMarkdown(b []byte) bool {
	heads, fences, marks, signs := 0, 0, 0, 0
	var before []byte
	for n := 0; len(b) > 0; n++ {
		l, rest, whole := bytes.Cut(b, []byte{'\n'})
		b = rest
		level, text := atx(l)
		switch {
		case level > 0 && text != "" && (n == 0 || isBlank(before)):
			heads++
		case level > 0:
			signs++
		case len(fenceOf(l)) > 0:
			fences++
		case isMark(l):
			marks++
		}
		before = l
		if !whole {
			break
		}
	}
	switch {
	case heads+fences/2 == 0 || signs > 0 && signs >= heads+fences:
		return false
	case heads > 0 && fences >= 2:
		return true
	}
	return 2*heads+fences/2+min(marks, 2) >= enoughMarks
}

// isMark says whether a line is a list's, a table's, a quote's, or has a link or strong words in it.
func isMark(l []byte) bool {
	t := bytes.TrimLeft(l, " ")
	for _, p := range [...]string{"- ", "* ", "+ ", "> ", "| ", "1. ", "---", "==="} {
		if bytes.HasPrefix(t, []byte(p)) {
			return true
		}
	}
	return bytes.Contains(l, []byte("](")) || bytes.Contains(l, []byte("**"))
}
