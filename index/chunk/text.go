package chunk

// Plain text is grouped by these.
const (
	groupLines  = 20  // a chunk has at most
	commonLines = 2   // are in the chunk before as well, if a paragraph goes on
	commonBytes = 512 // and no more than so much
	paragraph   = 3   // lines with words end a chunk at a blank line. With less, what follows is added
)

// plainText makes chunks of paragraphs, and of groups of lines where those are long or there are none.
type plainText struct {
	s     *splitter
	g     group
	empty bool // the line before was
}

func (t *plainText) line(l line) error {
	empty := isBlank(l.text)
	twice := empty && t.empty
	t.empty = empty
	switch {
	case empty && t.g.filled == 0:
		return t.flush(0)
	case t.s.dense(len(t.g.text)): // and there is room: a line is not longer than a chunk less that
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
	if l.more { // the next part has some of this one
		return t.flush(0)
	}
	return nil
}

func (t *plainText) end() error { return t.flush(0) }

// flush makes the chunk. If a line of so many bytes goes on from there, the last lines stay in the group.
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

// keep takes the first k lines away, but for the last of them if a line of so many bytes goes on from there.
func (g *group) keep(k, next int) {
	common := min(commonLines, k)
	for common > 0 && (next == 0 || g.at(k)-g.at(k-common) > min(commonBytes, MaxText-next)) {
		common--
	}
	g.drop(k-common, common)
}
