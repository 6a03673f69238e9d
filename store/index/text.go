package index

// Bounds of chunks of plain text.
const (
	groupLines  = 20  // maximum number of lines of a chunk
	commonLines = 2   // maximum number of lines that are repeated from the previous chunk if a paragraph continues
	commonBytes = 512 // maximum size of these in bytes
	paragraph   = 3   // minimum number of nonblank lines for a chunk to end at a blank line
)

// plainText makes chunks of paragraphs, and of groups of lines where paragraphs are long or absent.
type plainText struct {
	s     *splitter
	g     lineGroup
	empty bool // the previous line was blank
}

func (t *plainText) line(l textLine) error {
	empty := isBlank(l.text)
	twice := empty && t.empty
	t.empty = empty
	switch {
	case empty && t.g.filled == 0:
		return t.flush(0)
	case t.s.dense(len(t.g.text)): // the group has room, since no line is longer than a chunk less tinyText
	case empty && (t.g.filled >= paragraph || twice):
		return t.flush(0)
	case !t.g.fits(len(l.text)):
		if err := t.flush(len(l.text)); err != nil {
			return err
		}
	case len(t.g.starts) >= groupLines:
		if err := t.flush(len(l.text)); err != nil {
			return err
		}
	}
	t.g.add(l)
	if l.more { // the next part repeats the end of this one
		return t.flush(0)
	}
	return nil
}

func (t *plainText) end() error { return t.flush(0) }

// flush emits the chunk. next is the size of the line that continues the text; if it is not 0, the last lines stay in the
// group.
func (t *plainText) flush(next int) error {
	n := len(t.g.starts)
	if t.g.fresh(n) {
		if err := t.s.chunk(t.g.text, t.g.first, "", ""); err != nil {
			return err
		}
	}
	t.g.keep(n, next)
	return nil
}

// keep removes the first k lines, except that if next is not 0, the last of them stay as far as they fit before a line of
// next bytes.
func (g *lineGroup) keep(k, next int) {
	common := min(commonLines, k)
	for common > 0 && (next == 0 || g.at(k)-g.at(k-common) > min(commonBytes, maxChunk-next)) {
		common--
	}
	g.drop(k-common, common)
}
