package index

import "bytes"

// detect returns the format of a stream, given its first clean text.
func detect(b []byte) Format {
	switch {
	case isJSON(b):
		return JSON
	case isMarkdown(b):
		return Markdown
	}
	return Text
}

// isJSON reports whether b starts with an object or an array that is valid as far as it goes, or that ends with its line.
func isJSON(b []byte) bool {
	if t := bytes.TrimLeft(b, " \t\n"); len(t) == 0 || t[0] != '{' && t[0] != '[' {
		return false
	}
	s := newSplitter(Source{}, func(chunk) error { return nil })
	j := newJSONText(s)
	s.form = j
	_, _ = j.take(b, false) // the callback returns no error
	return s.form == chunkForm(j) || j.scan.ended
}

// enoughMarks is the minimum score of Markdown's features.
const enoughMarks = 3

// isMarkdown reports whether b has a separate heading or a fenced block, and enough other features of Markdown. A
// separate heading is on the first line or follows a blank one: consecutive lines with number signs are comments of a
// program.
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

// isMark reports whether a line belongs to a list, a table or a quote, or has a link or bold text.
func isMark(l []byte) bool {
	t := bytes.TrimLeft(l, " ")
	for _, p := range [...]string{"- ", "* ", "+ ", "> ", "| ", "1. ", "---", "==="} {
		if bytes.HasPrefix(t, []byte(p)) {
			return true
		}
	}
	return bytes.Contains(l, []byte("](")) || bytes.Contains(l, []byte("**"))
}
