package artifact

import (
	"bytes"
	"unicode/utf8"

	safe "corral/internal/text"
)

// A selection says which lines of a stream to keep. The zero value only counts lines.
type selection struct {
	First, Last int // number of lines at the front and at the end
	// Terms are searched for in each line: literally, ignoring case by Unicode simple folding. Empty terms and those with
	// a newline match no line. Excerpts are made around lines that contain one.
	Terms    []string
	Context  int   // lines of context before and after
	Excerpts int   // maximum number of excerpts
	From, To int64 // keep these lines, too, 1-based, inclusive; From 0 is none
	Within   bool  // look for terms in From to To only
	// At lists lines to make excerpts around, too: sorted numbers of stored lines, see lineReader.Gap.
	At []int64
}

// A lineReader reads a stream and keeps the lines to show: the first and the last ones, a range, and excerpts around lines that
// contain a term. It is not safe for concurrent use.
//
// It serves running jobs and stored artifacts alike. The stream arrives in pieces of any size, and the result does not
// depend on how it is split. Lines end with a newline; text is shown as valid UTF-8, and of a line at most maxLine
// characters. Memory is bounded by the selection, not by the stream or the length of its lines.
type lineReader struct {
	want selection
	n    int64 // complete lines so far
	open bool  // a line has begun and not ended
	// terminated reports that the last line had a newline.
	terminated bool

	cur     line
	keep    bool // the text of cur is kept
	partial []byte
	scratch []byte
	valid   []byte  // buffer for invalid UTF-8 made valid
	find    *finder // nil once nothing is searched for
	hit     bool    // cur has a match
	due     []int64 // numbers of want.At not yet reached
	left    int64   // lines left out in gaps so far

	head  []line
	ring  []line // lines before cur; line n is at n % len
	texts excerpts
	part  section // the lines From to To
	room  int     // how many more lines part may have; negative once it was cut
	cut   bool    // part or texts is incomplete
}

// Bounds of the text that is kept.
const (
	// maxText is the approximate maximum in bytes of Part, and of all Excerpts together.
	maxText  = 1 << 20
	maxLines = 20_000 // maximum of Part
)

// newLineReader returns a lineReader that keeps the selected lines.
func newLineReader(w selection) *lineReader {
	v := &lineReader{want: w, room: maxLines, ring: make([]line, max(w.Last, w.Context))}
	if w.Excerpts > 0 {
		v.due = w.At
	}
	if len(w.Terms) == 0 && len(v.due) == 0 {
		v.ring = v.ring[:w.Last:w.Last]
	} else if f := newFinder(w.Terms); len(f.terms) > 0 && w.Excerpts > 0 {
		v.find = f
	}
	return v
}

// Write processes the next piece of the stream, without keeping a reference to it. It never fails.
func (v *lineReader) Write(p []byte) (int, error) {
	v.write(p)
	return len(p), nil
}

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

// Close ends the stream: what it selected is complete then.
func (v *lineReader) Close() {
	if v.open {
		v.end(false)
	}
	v.texts.end()
}

// skip counts the complete lines at the front of p that are not needed, and returns their length in bytes.
func (v *lineReader) skip(p []byte) int {
	if len(v.head) < v.want.First || v.texts.open(v.n+1) || v.find != nil && !v.want.Within && v.find.in(p) {
		return 0
	}
	count := int64(bytes.Count(p, []byte{'\n'}))
	if v.want.From > 0 && v.n+count >= v.want.From && v.n < v.want.To && (v.room >= 0 || v.find != nil) {
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

// add processes a part of a line.
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
	cut := len(safe.Complete(p))
	v.partial = append(v.partial[:0], p[cut:]...)
	v.text(p[:cut])
}

func (v *lineReader) begin() {
	v.open = true
	v.partial = v.partial[:0]
	number := v.n + 1
	v.hit = v.comes(number)
	v.keep = len(v.head) < v.want.First || len(v.ring) > 0 || v.texts.open(number) || v.want.has(number) ||
		v.hit || v.find != nil && !v.want.Within
	v.cur.reset()
	if v.find != nil {
		v.find.newLine()
	}
}

// text processes a part of a line that ends with a complete character or with the line.
func (v *lineReader) text(p []byte) {
	if !utf8.Valid(p) {
		v.valid = safe.AppendValid(v.valid[:0], p)
		p = v.valid
	}
	v.cur.add(p)
	if v.find != nil && !v.hit {
		v.hit = v.find.next(p)
	}
}

// end completes the current line.
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
		v.record(&v.cur)
	}
}

// record adds line l, which is line n, to every part of the selection that it belongs to.
func (v *lineReader) record(l *line) {
	switch {
	case v.texts.open(v.n) && v.texts.size >= maxText:
		v.cut = true
		v.enough()
		v.texts.end()
	case v.texts.open(v.n):
		v.texts.add(v.n, l)
	case v.hit && (!v.want.Within || v.want.has(v.n)):
		v.excerpt(l)
	}
	if len(v.head) < v.want.First {
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

// section adds a line to the part.
func (v *lineReader) section(l *line) {
	if len(v.part.text) >= maxText || v.room <= 0 {
		v.room, v.cut = -1, true
		return
	}
	v.room--
	v.part.add(v.n, l)
}

// has reports whether line n is one of From to To.
func (w *selection) has(n int64) bool { return w.From > 0 && w.From <= n && n <= w.To }

// at returns the ring's entry for line n.
func (v *lineReader) at(n int64) *line { return &v.ring[n%int64(len(v.ring))] }

// since returns the first of the lines before n that are in the ring without a gap, at most limit of them.
func (v *lineReader) since(n, limit int64) int64 {
	limit = min(limit, int64(len(v.ring)))
	first := n
	for first > 1 && n-first < limit && v.at(first-1).number == first-1 {
		first--
	}
	return first
}

// excerpt begins an excerpt around l, which contains a term.
func (v *lineReader) excerpt(l *line) {
	if v.texts.size >= maxText {
		v.cut = true
		v.enough()
		return
	}
	from, until := v.since(v.n, int64(v.want.Context)), v.n+int64(v.want.Context)
	if v.want.Within {
		from, until = max(from, v.want.From), min(until, v.want.To)
	}
	v.texts.begin(until)
	for n := from; n < v.n; n++ {
		v.texts.add(n, v.at(n))
	}
	v.texts.add(v.n, l)
	if len(v.texts.list) < v.want.Excerpts {
		return
	}
	v.enough()
	if v.want.Last == 0 {
		v.ring = nil
	}
}

// enough stops the search.
func (v *lineReader) enough() { v.find, v.due = nil, nil }

// stored returns the number that line n has in the stored stream.
func (v *lineReader) stored(n int64) int64 { return n - v.left }

// comes reports whether line n is one of want.At.
func (v *lineReader) comes(n int64) bool {
	for len(v.due) > 0 && v.due[0] < v.stored(n) {
		v.due = v.due[1:]
	}
	return len(v.due) > 0 && v.due[0] == v.stored(n)
}

// Gap records that left lines were left out here, and shows marker in their place. After a gap, lines keep the numbers
// that they had in the whole stream. selection.At counts lines without gaps, with the marker as one line.
func (v *lineReader) Gap(left int64, marker string) {
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

// lastLines returns the last n lines, or fewer.
func (v *lineReader) lastLines(n int) []*line {
	var out []*line
	for i := v.since(v.n+1, int64(n)); i <= v.n; i++ {
		out = append(out, v.at(i))
	}
	return out
}
