package index

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A candidate is a chunk that may become a hit.
type candidate struct {
	row     int64
	hit     Hit
	score   float64
	line    int     // index of the best line, from 0
	inLine  float64 // how well that line matches
	all     bool    // it contains all words
	phrases int     // number of phrases that it contains
}

const (
	// textWeight is the weight of the score of a chunk's text relative to its rank in the lists.
	textWeight = 8
	// chunkShare is the weight of words anywhere in title and text, relative to those of the best line.
	chunkShare = 0.5
	// nearShare is the weight of all words close together.
	nearShare = 0.5
	// halfProximity is the number of bytes between the words that halves nearShare.
	halfProximity = 60
	// rankBase is the k of reciprocal ranks: rank r scores 1/(k+r).
	rankBase = 60
)

// rank selects the hits from the rows: it reads the first, and ranks them by their texts.
func (s *search) rank(rows []int64) error {
	read, err := s.load(rows)
	if err != nil {
		return err
	}
	if s.oneList {
		read = s.countAll(read)
	}
	if !s.query.Newest {
		best := math.SmallestNonzeroFloat64
		for _, c := range read {
			best = max(best, c.score)
		}
		for i, c := range read {
			c.score = textWeight*c.score/best + rankBase/float64(rankBase+i)
		}
		slices.SortStableFunc(read, func(a, b *candidate) int {
			return cmp.Or(cmp.Compare(b.phrases, a.phrases), cmp.Compare(b.score, a.score), cmp.Compare(b.row, a.row))
		})
	}
	s.selectHits(read)
	return nil
}

// countAll sets Found.Matched if all candidates are read. Of the newest, it returns those that contain all words.
func (s *search) countAll(read []*candidate) []*candidate {
	var all []*candidate
	for _, c := range read {
		if c.all {
			all = append(all, c)
			c.score += 1.0 / textWeight
		}
	}
	s.matched(len(all))
	if s.query.Newest && len(all) > 0 {
		return all
	}
	return read
}

// Marks that FTS5 puts around words. Texts contain no control characters.
const markStart, markEnd = "\x02", "\x03"

// load reads the first chunks whose sources may be found, at most maxRead, in the order of rows.
func (s *search) load(rows []int64) ([]*candidate, error) {
	s.weigh()
	var read []*candidate
	byRow := map[int64]*candidate{}
	var ids []int64
	for _, row := range rows {
		if len(read) == maxRead {
			break
		}
		source, err := s.source(sourceOf(row))
		if err != nil {
			return nil, err
		}
		if source == nil || byRow[row] != nil {
			continue
		}
		c := &candidate{row: row, hit: *source}
		byRow[row] = c
		read = append(read, c)
		ids = append(ids, row)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	if err := s.loadTexts(string(list), byRow); err != nil {
		return nil, err
	}
	return read, s.countPhrases(string(list), byRow)
}

// loadTexts reads the chunks with marks around the words of the query.
func (s *search) loadTexts(ids string, byRow map[int64]*candidate) error {
	rows, err := s.tx.QueryContext(s.ctx, `SELECT rowid, highlight(found, 0, char(2), char(3)), highlight(found, 1, char(2), char(3)),
		highlight(found, 2, char(2), char(3)), class, first, last, sum
		FROM found WHERE found MATCH ? AND rowid IN (SELECT value FROM json_each(?))`,
		matchGroups(s.groups, " OR "), ids)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for ; rows.Next(); n++ {
		var row int64
		var title, text, parts string
		var sum uint32
		var h Hit
		if err := rows.Scan(&row, &title, &text, &parts, &h.Class, &h.LineStart, &h.LineEnd, &sum); err != nil {
			return err
		}
		c := byRow[row]
		if c == nil {
			return fmt.Errorf("%w: chunk %d", errDamaged, row)
		}
		c.hit.Class, c.hit.LineStart, c.hit.LineEnd = h.Class, h.LineStart, h.LineEnd
		s.score(c, title, text, parts)
		if sum != checksum(c.hit.Title, c.hit.Text) || h.LineStart < 1 || h.LineEnd < h.LineStart {
			return fmt.Errorf("%w: chunk %d", errDamaged, row)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if n != len(byRow) {
		return fmt.Errorf("%w: %d of %d chunks are missing", errDamaged, len(byRow)-n, len(byRow))
	}
	return nil
}

// countPhrases counts the phrases in the chunks.
func (s *search) countPhrases(ids string, byRow map[int64]*candidate) error {
	for _, p := range s.phrases {
		rows, err := column[int64](s.ctx, s.tx, "SELECT rowid FROM found WHERE found MATCH ? AND rowid IN (SELECT value FROM json_each(?))", p, ids)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if c := byRow[row]; c != nil {
				c.phrases++
			}
		}
	}
	return nil
}

// weigh sets the weights of the words: rare ones weigh more.
func (s *search) weigh() {
	for _, g := range s.groups {
		n := float64(g.count)
		g.weight = math.Log(1 + (max(float64(s.total)-n, 0)+0.5)/(n+0.5))
	}
}

// A mark is a word of a text that belongs to a group.
type mark struct {
	group      int
	word       int     // of the alternatives of all groups
	weight     float64 // of that word
	start, end int
}

// A tally counts words that match: each of the alternatives of a group once, and a group at most as 1.
type tally struct {
	groups []float64
	words  map[int]bool
}

func (t *tally) add(m mark) {
	if !t.words[m.word] {
		t.words[m.word] = true
		t.groups[m.group] = min(1, t.groups[m.group]+m.weight)
	}
}

func (s *search) tally() *tally { return &tally{make([]float64, len(s.groups)), map[int]bool{}} }

// sum returns the weighted sum of the words that match.
func (s *search) sum(t *tally) (sum float64) {
	for i, part := range t.groups {
		sum += part * s.groups[i].weight
	}
	return sum
}

// score rates a chunk, given its columns with marks, and sets the fields of its hit that depend on the query.
func (s *search) score(c *candidate, title, text, parts string) {
	_, inParts := s.marks(parts)
	title, inTitle := s.marks(title)
	text, inText := s.marks(text)
	inText = s.addParts(text, inText, parts, inParts)
	c.hit.Title, c.hit.Text = title, text
	inChunk, inLine := s.tally(), s.tally()
	for _, m := range inTitle {
		inChunk.add(m)
	}
	n, at, start := 0, 0, 0
	best := ""
	for line := range strings.Lines(text) {
		clear(inLine.groups)
		clear(inLine.words)
		for start += len(line); at < len(inText) && inText[at].start < start; at++ {
			m := inText[at]
			inLine.add(m)
			inChunk.add(m)
			c.mark(m)
		}
		if t := s.sum(inLine); t > c.inLine || n == 0 {
			c.inLine, c.line, best = t, n, line
		}
		n++
	}
	c.score = c.inLine + chunkShare*s.sum(inChunk) + nearShare*s.proximity(inText)
	c.all = !slices.Contains(inChunk.groups, 0)
	c.hit.Line = strings.TrimRight(best, "\r\n")
	c.hit.LineNumber = min(c.hit.LineStart+int64(c.line), c.hit.LineEnd)
}

// mark adds a mark to the hit. Marks are sorted.
func (c *candidate) mark(m mark) {
	if k := len(c.hit.Marks); k > 0 && m.start < c.hit.Marks[k-1][1] {
		c.hit.Marks[k-1][1] = max(c.hit.Marks[k-1][1], m.end)
		return
	}
	c.hit.Marks = append(c.hit.Marks, [2]int{m.start, m.end})
}

// proximity rates the shortest stretch of a text that contains all words: more the closer they are, 0 if there is none.
func (s *search) proximity(marks []mark) float64 {
	if len(s.groups) < 2 {
		return 0
	}
	counts := make([]int, len(s.groups))
	have, first, shortest := 0, 0, math.MaxInt
	for _, m := range marks {
		if counts[m.group]++; counts[m.group] == 1 {
			have++
		}
		for have == len(counts) {
			f := marks[first]
			shortest = min(shortest, m.end-f.start)
			if counts[f.group]--; counts[f.group] == 0 {
				have--
			}
			first++
		}
	}
	if shortest == math.MaxInt {
		return 0
	}
	all := 0.0
	for _, g := range s.groups {
		all += g.weight
	}
	return all * halfProximity / float64(halfProximity+shortest)
}

// marks removes the marks of FTS5 from a text, and returns where they were.
func (s *search) marks(marked string) (text string, marks []mark) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(marked, markStart)
		b.WriteString(before)
		if !found {
			return b.String(), marks
		}
		word, after, _ := strings.Cut(rest, markEnd)
		for _, m := range s.meaning(word) {
			m.start, m.end = b.Len(), b.Len()+len(word)
			marks = append(marks, m)
		}
		b.WriteString(word)
		marked = after
	}
}

// meaning returns the groups that FTS5 matched with a word. FTS5 does not say which. A stem is nearly a prefix of its words, so meaning
// takes the groups with the longest common prefix.
func (s *search) meaning(word string) []mark {
	word = strings.ToLower(word)
	if of, ok := s.meanings[word]; ok {
		return of
	}
	var best []mark
	longest, words := 0, 0
	for i, g := range s.groups {
		most, size := -1, 0
		m := mark{group: i}
		for _, alt := range g.alts {
			for _, w := range alt.words {
				if n := commonPrefix(w, word); n > most || n == most && len(w) < size {
					most, size, m.word, m.weight = n, len(w), words, alt.weight/float64(len(alt.words))
				}
				words++
			}
		}
		if most > longest || len(best) == 0 {
			best, longest = nil, most
		}
		if most == longest {
			best = append(best, m)
		}
	}
	if s.meanings == nil {
		s.meanings = map[string][]mark{}
	}
	s.meanings[word] = best
	return best
}

func commonPrefix(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// addParts adds marks where the text has the parts of words that matched. A part weighs a little less than a word.
func (s *search) addParts(text string, marks []mark, parts string, inParts []mark) []mark {
	lower := strings.ToLower(text)
	if len(inParts) == 0 || len(lower) != len(text) {
		return marks
	}
	parts = strings.NewReplacer(markStart, "", markEnd, "").Replace(parts)
	done := map[string]bool{}
	for _, m := range inParts {
		part := parts[m.start:m.end]
		if g := s.groups[m.group]; strings.HasPrefix(part, "u") && len(g.alts) == 1 && g.alts[0].words[0] == part {
			part = g.word // a symbol
		}
		if done[part] {
			continue
		}
		done[part] = true
		m.weight *= weightParts
		for at := 0; ; {
			i := strings.Index(lower[at:], part)
			if i < 0 {
				break
			}
			m.start, m.end = at+i, at+i+len(part)
			if startsPart(text, m.start) {
				marks = append(marks, m)
			}
			at = m.end
		}
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.start, b.start) })
	return marks
}

// startsPart reports whether a part of a word can start at i: not within letters of the same case.
func startsPart(text string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	r, _ := utf8.DecodeRuneInString(text[i:])
	return i == 0 || !isWord(before) || caseOfRune(r) != caseOfRune(before) || caseOfRune(r) == dense
}

// selectHits converts candidates to hits, up to the limit. Of candidates with the same text it selects the newest, and of
// those that show the same line of a stream, the first.
func (s *search) selectHits(read []*candidate) {
	type line struct{ source, number int64 }
	lines := map[line]bool{}
	texts := map[string]*candidate{}
	for _, c := range read {
		if t := texts[c.hit.Text]; t == nil || t.row < c.row {
			texts[c.hit.Text] = c
		}
	}
	for _, c := range read {
		if len(s.found.Hits) == s.query.Limit {
			return
		}
		best := texts[c.hit.Text]
		if best == nil {
			continue
		}
		texts[c.hit.Text] = nil
		at := line{sourceOf(best.row), best.hit.LineNumber}
		if best.inLine > 0 && lines[at] {
			continue
		}
		lines[at] = true
		s.found.Hits = append(s.found.Hits, best.hit)
	}
}
