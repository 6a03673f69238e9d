package index

// A lineGroup collects lines for a chunk. The first of them may have been in the previous chunk.
type lineGroup struct {
	text   []byte // the lines, each with a newline
	starts []int  // offsets of the lines
	first  int64  // number of the first line
	old    int    // number of lines that were in a previous chunk
	filled int    // number of nonblank lines among the others
}

// fits reports whether a line of n bytes fits into the group.
func (g *lineGroup) fits(n int) bool { return len(g.text)+n <= maxChunk }

func (g *lineGroup) add(l textLine) {
	if len(g.starts) == 0 {
		g.first = l.n
	}
	g.starts = append(g.starts, len(g.text))
	g.text = append(append(g.text, l.text...), '\n')
	if !isBlank(l.text) {
		g.filled++
	}
}

// at returns the offset of line k, or the end of the text if k is the number of lines.
func (g *lineGroup) at(k int) int {
	if k == len(g.starts) {
		return len(g.text)
	}
	return g.starts[k]
}

// line returns line k without its newline.
func (g *lineGroup) line(k int) []byte { return g.text[g.at(k) : g.at(k+1)-1] }

// drop removes the first k lines. The first old of the remaining lines have been in a chunk.
func (g *lineGroup) drop(k, old int) {
	from := g.at(k)
	g.text = g.text[:copy(g.text, g.text[from:])]
	g.starts = g.starts[:copy(g.starts, g.starts[k:])]
	for i := range g.starts {
		g.starts[i] -= from
	}
	g.first += int64(k)
	g.old, g.filled = old, 0
	for k := old; k < len(g.starts); k++ {
		if !isBlank(g.line(k)) {
			g.filled++
		}
	}
}

// fresh reports whether one of the first k lines is not blank and has not been in a chunk.
func (g *lineGroup) fresh(k int) bool {
	if k == len(g.starts) {
		return g.filled > 0
	}
	for i := g.old; i < k; i++ {
		if !isBlank(g.line(i)) {
			return true
		}
	}
	return false
}
