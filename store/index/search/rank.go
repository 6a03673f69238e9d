package search

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"corral/store/index/db"
)

// rankBase is the k of reciprocal rank fusion: rank r in a list scores 1/(k+r) (G. V. Cormack and others, Reciprocal rank
// fusion outperforms Condorcet and individual rank learning methods, SIGIR 2009).
const rankBase = 60

// textWeight is the weight of the score of a chunk's text, which considers lines and rare words, relative to its ranks in
// the lists.
const textWeight = 8

// A candidate is a chunk that may become a hit.
type candidate struct {
	row   int64
	score float64 // from all lists
	hit   Hit
	text  score
}

// rank selects the hits from the lists. It reads the chunks that are best by their ranks, and ranks them again by their
// texts.
func (s *search) rank(lists []list) error {
	best := fuse(lists)
	if s.query.Newest {
		best = s.newest(lists)
	}
	m := newMatcher(s.request, s.total)
	var read []*candidate
	for _, c := range best {
		if len(read) == maxRead {
			break
		}
		ok, err := s.load(c)
		if err != nil {
			return err
		}
		if ok {
			c.text = m.score(c.hit.Title, c.hit.Text)
			read = append(read, c)
		}
	}
	if len(lists) == 1 && len(m.weights) > 1 {
		read = s.favorAll(read)
	}
	if !s.query.Newest {
		rerank(read)
	}
	s.selectHits(read, m)
	return nil
}

// favorAll raises chunks that contain all words. It replaces the list of these, which is missing if all candidates are
// read.
func (s *search) favorAll(read []*candidate) []*candidate {
	var all []*candidate
	for _, c := range read {
		if c.text.all {
			all = append(all, c)
			c.score += 1.0 / rankBase
		}
	}
	s.matched(len(all))
	if s.query.Newest && len(all) > 0 {
		return all
	}
	return read
}

// fuse merges lists by reciprocal rank fusion.
func fuse(lists []list) []*candidate {
	all := map[int64]*candidate{}
	var order []*candidate
	for _, l := range lists {
		for i, row := range l.rows {
			c := all[row]
			if c == nil {
				c = &candidate{row: row}
				all[row] = c
				order = append(order, c)
			}
			if !l.scored { // all ranks are equal
				i = 0
			}
			c.score += l.weight / float64(rankBase+i)
		}
	}
	slices.SortFunc(order, byScore)
	return order
}

func byScore(a, b *candidate) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.row, a.row))
}

// newest returns the rows that contain all words, or if there are none, any word. The newest source comes first.
func (s *search) newest(lists []list) []*candidate {
	var all []*candidate
	if len(lists) == 0 {
		return nil
	}
	rows := lists[0].rows
	if all := lists[len(lists)-1].rows; len(all) > 0 {
		rows = all
	}
	for _, row := range rows {
		all = append(all, &candidate{row: row})
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(db.SourceOf(b.row), db.SourceOf(a.row)), cmp.Compare(a.row, b.row))
	})
	return all
}

// rerank sorts candidates by the phrases they contain, then by their texts and ranks, both scaled to a maximum of 1.
func rerank(read []*candidate) {
	text, lists := math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64
	for _, c := range read {
		text, lists = max(text, c.text.total), max(lists, c.score)
	}
	for _, c := range read {
		c.score = textWeight*c.text.total/text + c.score/lists
	}
	slices.SortFunc(read, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.text.phrases, a.text.phrases), byScore(a, b))
	})
}

// load reads a candidate's chunk. It returns false if its source must not be found.
func (s *search) load(c *candidate) (bool, error) {
	source, err := s.source(db.SourceOf(c.row))
	if source == nil || err != nil {
		return false, err
	}
	c.hit = *source
	var compressed []byte
	var sum uint32
	if s.chunk == nil {
		s.chunk, err = s.tx.PrepareContext(s.ctx, "SELECT title, class, first, last, sum, text FROM chunks WHERE id = ?")
		if err != nil {
			return false, err
		}
	}
	if err := s.ctx.Err(); err != nil { // a context would start a goroutine per read
		return false, err
	}
	err = s.chunk.QueryRow(c.row).
		Scan(&c.hit.Title, &c.hit.Class, &c.hit.LineStart, &c.hit.LineEnd, &sum, &compressed)
	if err != nil {
		return false, db.AsDamage(err)
	}
	if c.hit.Text, err = s.inflater.Text(compressed); err != nil {
		return false, err
	}
	if sum != db.Checksum(c.hit.Title, c.hit.Text) || c.hit.LineStart < 1 || c.hit.LineEnd < c.hit.LineStart {
		return false, fmt.Errorf("%w: chunk %d", db.ErrDamaged, c.row)
	}
	return true, nil
}

// selectHits converts candidates to hits, up to the limit. Of candidates with the same text it selects the newest, and of
// those that show the same line of a stream, the first.
func (s *search) selectHits(read []*candidate, m *matcher) {
	type line struct{ source, number int64 }
	lines := map[line]bool{}
	texts := map[uint64]*candidate{}
	seed := maphash.MakeSeed()
	for _, c := range read {
		h := maphash.String(seed, c.hit.Text)
		if t := texts[h]; t == nil || t.row < c.row {
			texts[h] = c
		}
	}
	for _, c := range read {
		if len(s.found.Hits) == s.query.Limit {
			return
		}
		h := maphash.String(seed, c.hit.Text)
		best := texts[h]
		if best == nil {
			continue
		}
		texts[h] = nil
		at := line{db.SourceOf(best.row), best.hit.LineStart + int64(best.text.line)}
		if best.text.lineTotal > 0 && lines[at] {
			continue
		}
		lines[at] = true
		m.show(&best.hit, best.text.line)
		s.found.Hits = append(s.found.Hits, best.hit)
	}
}
