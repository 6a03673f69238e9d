package artifact

import (
	"bytes"
	"unicode/utf8"
)

// wanted is what of a stream's lines is kept. The zero value counts only.
type wanted struct {
	first, last int      // lines at the front and at the end
	terms       []string // excerpts around lines that have one of these, in either case:
	context     int      // so many lines before and after
	excerpts    int      // at most
	from, to    int64    // and these lines, 1-based; from 0 is none
	within      bool     // terms are looked for in these lines alone
	at          []int64  // excerpts around these lines as well, by their numbers in what is stored, in order
}

// A lineReader reads a stream in pieces of any size and keeps what is wanted of it. It is the same for a job that runs and for
// an artifact that is read. Memory is bounded by what is wanted, not by the stream or its lines.
type lineReader struct {
	want wanted
	n    int64 // ended so far
	open bool  // one has begun and not ended
	// terminated says that the last line had a newline.
	terminated bool

	cur     line
	keep    bool // cur has text
	partial []byte
	scratch []byte
	valid   []byte  // what is no text, made some
	find    *finder // nil when nothing is looked for any more
	hit     bool    // in cur
	due     []int64 // what of want.at is yet to come
	left    int64   // lines that a gap left out so far

	head  []line
	ring  []line // of the lines before cur; the next goes to n % len
	texts excerpts
	part  section // from, to:
	room  int     // so many lines more; less than none: it is cut
	cut   bool    // part, or texts, is not all of it
}

// Bounds of what is kept to be returned.
const (
	maxText  = 1 << 20 // about how much text of the lines from, to, and of excerpts, in bytes
	maxLines = 20_000  // of the lines from, to
)

func newLineReader(w wanted) *lineReader {
	v := &lineReader{want: w, room: maxLines, ring: make([]line, max(w.last, w.context))}
	if w.excerpts > 0 {
		v.due = w.at
	}
	if len(w.terms) == 0 && len(v.due) == 0 {
		v.ring = v.ring[:w.last:w.last]
	} else if f := newFinder(w.terms); len(f.terms) > 0 && w.excerpts > 0 {
		v.find = f
	}
	return v
}

// write takes the next piece.
func (v *lineReader) write(p []byte) {
	if v.open {
		nl := bytes.IndexByte(p, '\n')
		if nl < 0 {
			v.add(p)
			return
		}
		v.add(p[:nl])
		v.end(true)
		p = p[nl+1:]
	}
	whole := bytes.LastIndexByte(p, '\n') + 1
	rest := p[whole:]
	for p = p[v.skip(p[:whole]):whole]; len(p) > 0; {
		nl := bytes.IndexByte(p, '\n')
		v.add(p[:nl])
		v.end(true)
		p = p[nl+1:]
	}
	if len(rest) > 0 {
		v.add(rest)
	}
}

// close says that the stream has ended.
func (v *lineReader) close() {
	if v.open {
		v.end(false)
	}
	v.texts.end()
}

// skip passes over those whole lines at the front of p that nothing is wanted of, and returns how many bytes they are.
func (v *lineReader) skip(p []byte) int {
	if len(v.head) < v.want.first || v.texts.open(v.n+1) || v.find != nil && !v.want.within && v.find.in(p) {
		return 0
	}
	count := int64(bytes.Count(p, []byte{'\n'}))
	if v.want.from > 0 && v.n+count >= v.want.from && v.n < v.want.to && (v.room >= 0 || v.find != nil) {
		return 0
	}
	if len(v.due) > 0 && v.due[0] <= v.stored(v.n+count) {
		return 0
	}
	if count <= int64(len(v.ring)) {
		return 0
	}
	at := len(p)
	for range len(v.ring) {
		at = bytes.LastIndexByte(p[:at-1], '\n') + 1
	}
	v.n += count - int64(len(v.ring))
	v.terminated = true
	return at
}

// add takes a part of a line.
func (v *lineReader) add(p []byte) {
	if !v.open {
		v.begin()
	}
	if !v.keep {
		return
	}
	if len(v.partial) > 0 {
		v.scratch = append(append(v.scratch[:0], v.partial...), p...)
		p = v.scratch
	}
	cut := len(p) - unfinished(p)
	v.partial = append(v.partial[:0], p[cut:]...)
	v.text(p[:cut])
}

func (v *lineReader) begin() {
	v.open = true
	v.partial = v.partial[:0]
	number := v.n + 1
	v.hit = v.comes(number)
	v.keep = len(v.head) < v.want.first || len(v.ring) > 0 || v.texts.open(number) || v.want.has(number) ||
		v.hit || v.find != nil && !v.want.within
	v.cur.reset()
	if v.find != nil {
		v.find.newLine()
	}
}

// text takes a part of a line that ends with a whole character or with the line.
func (v *lineReader) text(p []byte) {
	if !utf8.Valid(p) {
		v.valid = appendText(v.valid[:0], p)
		p = v.valid
	}
	v.cur.add(p)
	if v.find != nil && !v.hit {
		v.hit = v.find.next(p)
	}
}

// end ends the line.
func (v *lineReader) end(terminated bool) {
	if !v.open {
		v.begin()
	}
	if len(v.partial) > 0 {
		v.text(v.partial)
	}
	v.open, v.terminated = false, terminated
	v.n++
	if v.keep {
		v.place(&v.cur)
	}
}

// place puts a line, which is number n, where it is wanted.
func (v *lineReader) place(l *line) {
	switch {
	case v.texts.open(v.n) && v.texts.size >= maxText:
		v.cut = true
		v.enough()
		v.texts.end()
	case v.texts.open(v.n):
		v.texts.add(v.n, l)
	case v.hit && (!v.want.within || v.want.has(v.n)):
		v.excerpt(l)
	}
	if len(v.head) < v.want.first {
		v.head = append(v.head, line{})
		v.head[len(v.head)-1].copyFrom(l)
	}
	if len(v.ring) > 0 {
		at := v.at(v.n)
		at.copyFrom(l)
		at.number = v.n
	}
	if v.want.has(v.n) {
		v.section(l)
	}
}

// section puts a line into the part.
func (v *lineReader) section(l *line) {
	if len(v.part.text) >= maxText || v.room <= 0 {
		v.room, v.cut = -1, true
		return
	}
	v.room--
	v.part.add(v.n, l)
}

// has says whether line n is of those asked for by number.
func (w *wanted) has(n int64) bool { return w.from > 0 && w.from <= n && n <= w.to }

// at is where line n of the last ones is or was.
func (v *lineReader) at(n int64) *line { return &v.ring[n%int64(len(v.ring))] }

// since returns the first of the lines before n that are there, without a gap and at most most of them.
func (v *lineReader) since(n, most int64) int64 {
	most = min(most, int64(len(v.ring)))
	first := n
	for first > 1 && n-first < most && v.at(first-1).number == first-1 {
		first--
	}
	return first
}

// excerpt begins one around l, which a term is in.
func (v *lineReader) excerpt(l *line) {
	if v.texts.size >= maxText {
		v.cut = true
		v.enough()
		return
	}
	from, until := v.since(v.n, int64(v.want.context)), v.n+int64(v.want.context)
	if v.want.within {
		from, until = max(from, v.want.from), min(until, v.want.to)
	}
	v.texts.begin(until)
	for n := from; n < v.n; n++ {
		v.texts.add(n, v.at(n))
	}
	v.texts.add(v.n, l)
	if len(v.texts.list) < v.want.excerpts {
		return
	}
	v.enough()
	if v.want.last == 0 {
		v.ring = nil
	}
}

// enough ends the search.
func (v *lineReader) enough() { v.find, v.due = nil, nil }

// stored is the number of line n in what is stored.
func (v *lineReader) stored(n int64) int64 { return n - v.left }

// comes says whether line n is of those that are wanted by their numbers in what is stored.
func (v *lineReader) comes(n int64) bool {
	for len(v.due) > 0 && v.due[0] < v.stored(n) {
		v.due = v.due[1:]
	}
	return len(v.due) > 0 && v.due[0] == v.stored(n)
}

// gap says that so many lines were left out here, and what stands for them.
func (v *lineReader) gap(left int64, marker string) {
	resume := v.n + left
	if v.open {
		v.end(true)
	}
	v.begin()
	find := v.find
	v.find, v.hit = nil, false
	v.add([]byte(marker))
	v.end(true)
	v.find = find
	v.left += max(resume-v.n, 0)
	v.n = max(v.n, resume)
}

// lastLines are the last n lines, or fewer.
func (v *lineReader) lastLines(n int) []*line {
	var out []*line
	for i := v.since(v.n+1, int64(n)); i <= v.n; i++ {
		out = append(out, v.at(i))
	}
	return out
}

// A section is consecutive lines as they are shown.
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

// excerpts are sections around lines that have a term. A line within one begins no other; the context before a line may
// have lines of the section before.
type excerpts struct {
	list  []section
	until int64 // the last goes on up to this line
	size  int   // of all together, in bytes
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
