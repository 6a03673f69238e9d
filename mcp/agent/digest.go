package agent

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"

	safe "corral/internal/text"
)

const (
	// maxWhole is the maximum number of bytes of output that a reply shows as it is.
	maxWhole = 16 << 10

	// endsPart is what part of the room the head and the tail of a digest each take: less if lines match the intent.
	endsPart      = 8
	endsPartFound = 64
)

// A stream is one stream of a process.
type stream struct {
	c    artifact.StreamCapture
	read func(w io.Writer) error // writes all that is stored; nil if nothing is
}

// show returns a stream in about room bytes: all of it, or its head and tail, with repeated lines folded, and the lines between
// that name failed tests or match the intent.
func (s *stream) show(room int, v *view) string {
	if v.tail > 0 {
		return lastLines(tool.UTF8(s.last(room)), v.tail, room)
	}
	if s.c.Between == 0 && s.c.Size() <= int64(room) {
		return tool.UTF8(s.c.Head + s.c.Tail)
	}
	d := newDigest(room, v.intent)
	if s.c.Between == 0 {
		_, _ = io.WriteString(d, s.c.Head+s.c.Tail)
		return d.end()
	}
	if s.read == nil || s.read(d) != nil {
		return s.ends(room, v)
	}
	if d.bytes <= int64(room) {
		return tool.UTF8(d.raw.String())
	}
	return d.end()
}

// last returns at least the last room bytes of a stream, or as much of its end as can be read.
func (s *stream) last(room int) string {
	if s.c.Between > 0 && s.read != nil {
		end := lastBytes{room: room}
		if s.read(&end) == nil {
			return string(end.kept)
		}
	}
	if s.c.Between > 0 && s.c.Tail != "" {
		return s.c.Tail
	}
	return s.c.Head + s.c.Tail
}

// A lastBytes is a Writer that keeps at least the last room bytes, and at most twice as many.
type lastBytes struct {
	room int
	kept []byte
}

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	n := len(p)
	p = p[max(0, n-l.room):]
	if drop := len(l.kept) - l.room; drop > 0 {
		l.kept = append(l.kept[:0], l.kept[drop:]...)
	}
	l.kept = append(l.kept, p...)
	return n, nil
}

// ends returns what is in memory of a stream that cannot be read in whole: one that is being written, or is not stored.
func (s *stream) ends(room int, v *view) string {
	head, tail := newDigest(room/2, v.intent), newDigest(room/2, v.intent)
	_, _ = io.WriteString(head, s.c.Head)
	_, _ = io.WriteString(tail, s.c.Tail)
	return run.Line(head.end()) + fmt.Sprintf("… %s not shown\n", kilobytes(s.c.Between)) + tail.end()
}

// lastLines returns the last n lines of text, in at most room bytes.
func lastLines(text string, n, room int) string {
	at := len(strings.TrimSuffix(text, "\n"))
	for range n {
		before := strings.LastIndexByte(text[:max(at, 0)], '\n')
		if len(text)-before-1 > room {
			break
		}
		if at = before; at < 0 {
			break
		}
	}
	if at >= len(text)-1 { // one long line
		return safe.Head(text, room)
	}
	return text[at+1:]
}

// An entry is one line, or the note that it was repeated.
type entry struct {
	text     string
	from, to int64 // numbers of the lines that it stands for
}

// A digest is a Writer that keeps the ends of a text, and remarkable lines between them. It keeps a bounded part of what is
// written.
type digest struct {
	room   int
	raw    bytes.Buffer // the first room bytes and one more, as written
	bytes  int64
	lines  int64
	line   []byte   // the current line, at most maxLine bytes of it
	over   int64    // bytes of the current line that are not in line
	recent []string // the last different lines that were added, at most maxRecent
	last   string   // previous line
	repeat int64    // how many lines since were among recent
	mixed  bool     // they were not all the same line
	held   []string // the first of them, at most foldLeast

	head, tail []entry
	size       int // bytes of head
	tailSize   int
	dropped    bool // lines between head and tail were dropped

	found findings
}

func newDigest(room int, intent string) *digest {
	return &digest{room: room, found: newFindings(intent)}
}

// Write implements io.Writer.
func (d *digest) Write(p []byte) (int, error) {
	n := len(p)
	d.bytes += int64(n)
	if left := d.room + 1 - d.raw.Len(); left > 0 {
		d.raw.Write(p[:min(left, n)])
	}
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		keep := min(len(part), maxLine-len(d.line))
		d.line = append(d.line, part[:keep]...)
		d.over += int64(len(part) - keep)
		if p = rest; ended {
			d.endLine()
		}
	}
	return n, nil
}

func (d *digest) endLine() {
	text := safe.Head(tool.UTF8(string(d.line)), maxLine)
	if d.over > 0 {
		text += fmt.Sprintf("… (+%d bytes)", d.over)
	}
	d.line, d.over = d.line[:0], 0
	d.lines++
	d.found.see(d.lines, text)
	if slices.Contains(d.recent, text) {
		d.repeat++
		d.mixed = d.mixed || text != d.last
		d.last = text
		if len(d.held) < foldLeast {
			d.held = append(d.held, text)
		}
		return
	}
	d.unfold()
	d.last = text
	d.recent = append(d.recent[max(0, len(d.recent)-maxRecent+1):], text)
	d.add(entry{text, d.lines, d.lines})
}

const (
	// maxRecent is the maximum number of lines whose repetitions in any order are folded, such as those of two programs that write at
	// once.
	maxRecent = 4
	// foldLeast is the least number of repetitions of several lines that are folded: of few, the order may matter.
	foldLeast = 8
)

// unfold adds the repetitions of the last lines.
func (d *digest) unfold() {
	from, to := d.lines-d.repeat, d.lines-1
	switch {
	case d.mixed && d.repeat >= foldLeast:
		d.add(entry{fmt.Sprintf("… the last %d lines above, %d times in some order", len(d.recent), d.repeat), from, to})
	case d.mixed || d.repeat == 1:
		for n, text := range d.held {
			d.add(entry{text, from + int64(n), from + int64(n)})
		}
	case d.repeat > 1:
		d.add(entry{fmt.Sprintf("… same line %d times", d.repeat+1), from, to})
	}
	d.repeat, d.mixed, d.held = 0, false, d.held[:0]
}

// add appends an entry to the head, or to the tail, whose first entries are dropped when there is no room. The head takes up to
// room first; end divides it.
func (d *digest) add(e entry) {
	n := len(e.text) + 1
	if len(d.tail) == 0 && !d.dropped && d.size+n <= d.room {
		d.head = append(d.head, e)
		d.size += n
		return
	}
	d.tail = append(d.tail, e)
	d.tailSize += n
	for d.tailSize > d.room && len(d.tail) > 1 {
		d.tailSize -= len(d.tail[0].text) + 1
		d.tail = d.tail[1:]
		d.dropped = true
	}
}

// end returns the text.
func (d *digest) end() string {
	if len(d.line) > 0 || d.over > 0 {
		d.endLine()
	}
	d.lines++ // as if another line had ended the repetition
	d.unfold()
	d.lines--
	if len(d.tail) == 0 {
		return join(d.head)
	}
	all := d.head
	if !d.dropped {
		all = append(all, d.tail...)
	}
	ends := d.room / endsPart
	if len(d.found.match) > 0 { // what the caller looks for was found
		ends = d.room / endsPartFound
	}
	head := firstOf(all, ends)
	rest := d.tail
	if !d.dropped {
		rest = all[len(head):]
	}
	tail := lastOf(rest, ends)
	from, to := head[len(head)-1].to+1, tail[0].from-1
	var b strings.Builder
	b.WriteString(join(head))
	var found strings.Builder
	d.found.write(&found, from, to, d.room/4)
	but := ""
	if found.Len() > 0 {
		but = ", but for:"
	}
	fmt.Fprintf(&b, "… lines %d-%d of %d left out (%s in all)%s\n", from, to, d.lines, kilobytes(d.bytes), but)
	b.WriteString(found.String())
	b.WriteString(join(tail))
	return b.String()
}

func join(list []entry) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.text)
		b.WriteByte('\n')
	}
	return b.String()
}

// firstOf returns the first entries with at most room bytes, but at least one.
func firstOf(list []entry, room int) []entry {
	for n, e := range list {
		if room -= len(e.text) + 1; room < 0 && n > 0 {
			return list[:n]
		}
	}
	return list
}

// lastOf returns the last entries with at most room bytes, but at least one.
func lastOf(list []entry, room int) []entry {
	for n := len(list) - 1; n >= 0; n-- {
		if room -= len(list[n].text) + 1; room < 0 && n < len(list)-1 {
			return list[n+1:]
		}
	}
	return list
}
