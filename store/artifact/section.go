package artifact

import "strconv"

// Count returns the number of lines, including those that were left out.
func (v *lineReader) Count() int64 { return v.n }

// Incomplete reports whether Part or Excerpts has less than was selected, because that exceeds maxText or 20,000 lines.
func (v *lineReader) Incomplete() bool { return v.cut }

// Excerpts returns at most limit excerpts, without their source, around lines that contain a term, or that selection.At lists. A
// match within an excerpt does not begin another one. Lines before a match may be repeated from the previous excerpt, so that
// each can be read alone.
func (v *lineReader) Excerpts(limit int) []Excerpt {
	var out []Excerpt
	for i := range min(len(v.texts.list), limit) {
		out = append(out, v.texts.list[i].export())
	}
	return out
}

// Front returns the first lines, at most limit and at most selection.First.
func (v *lineReader) Front(limit int) Excerpt {
	var x section
	for i := range min(len(v.head), limit) {
		x.add(int64(i)+1, &v.head[i])
	}
	return x.export()
}

// Part returns the lines selection.From to To, as far as they exist and fit.
func (v *lineReader) Part() Excerpt { return v.part.export() }

// Summary returns the first head and the last tail lines as they are shown. omitted adds the number of lines between them.
// Both are at most those of the selection.
func (v *lineReader) Summary(head, tail int, omitted bool) string {
	n := int(min(int64(head), v.n))
	var b []byte
	for i := range n {
		b = appendLine(b, &v.head[i])
	}
	rest := v.n - int64(n)
	if between := rest - int64(tail); between > 0 && omitted {
		b = append(b, "\n... ("...)
		b = strconv.AppendInt(b, between, 10)
		b = append(b, " lines omitted) ...\n\n"...)
	}
	for _, l := range v.lastLines(int(min(int64(tail), rest))) {
		b = appendLine(b, l)
	}
	if len(b) > 0 && !v.terminated {
		b = b[:len(b)-1]
	}
	return string(b)
}

func appendLine(dst []byte, l *line) []byte { return append(l.appendTo(dst), '\n') }

// A section is a range of consecutive lines as shown.
type section struct {
	start, end int64
	text       []byte
}

func (s *section) add(n int64, l *line) {
	if s.start == 0 {
		s.start = n
	} else {
		s.text = append(s.text, '\n')
	}
	s.end = n
	s.text = l.appendTo(s.text)
}

func (s *section) export() Excerpt {
	return Excerpt{LineStart: s.start, LineEnd: s.end, Content: string(s.text)}
}

// excerpts are sections around lines that contain a term. A match within an excerpt does not begin another one; the
// context before a match may repeat lines of the previous section.
type excerpts struct {
	list  []section
	until int64 // the last excerpt extends to this line
	size  int   // total text in bytes
}

func (e *excerpts) open(n int64) bool { return n <= e.until }

func (e *excerpts) begin(until int64) {
	e.list = append(e.list, section{})
	e.until = until
}

func (e *excerpts) add(n int64, l *line) {
	last := &e.list[len(e.list)-1]
	before := len(last.text)
	last.add(n, l)
	e.size += len(last.text) - before
}

func (e *excerpts) end() { e.until = 0 }
