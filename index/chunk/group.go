package chunk

// A group is lines that are to become a chunk. The first of them may have been in the chunk before.
type group struct {
	text   []byte // the lines, each with a newline
	starts []int  // where they begin
	first  int64  // the number of the first one
	old    int    // how many were in a chunk before
	filled int    // of the others, how many have more than spaces
}

// fits says whether a line of so many bytes has room.
func (g *group) fits(n int) bool { return len(g.text)+n <= MaxText }

func (g *group) add(l line) {
	if len(g.starts) == 0 {
		g.first = l.n
	}
	g.starts = append(g.starts, len(g.text))
	g.text = append(append(g.text, l.text...), '\n')
	if !isBlank(l.text) {
		g.filled++
	}
}

// at is where line k begins; that of the line after the last is the end.
func (g *group) at(k int) int {
	if k == len(g.starts) {
		return len(g.text)
	}
	return g.starts[k]
}

// line is line k, without its newline.
func (g *group) line(k int) []byte { return g.text[g.at(k) : g.at(k+1)-1] }

// drop takes the first k lines away. Of those that stay, old are old.
func (g *group) drop(k, old int) {
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

// fresh says whether one of the lines before k has words and was in no chunk yet.
func (g *group) fresh(k int) bool {
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
