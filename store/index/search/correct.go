package search

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"corral/store/index/db"
	"corral/store/index/vocab"
	"corral/store/index/word"
)

const (
	// maxCorrected is the maximum number of words of a query that are corrected.
	maxCorrected = 8
	// maxPerGram is the maximum number of words examined per trigram, the newest first.
	maxPerGram = 8192
	// maxGathered is the maximum number of words examined per query: a base may be filled with words that share trigrams.
	maxGathered = 1 << 18
	// maxCompared is the maximum number of words compared with one, those that share most trigrams.
	maxCompared = 400
	// A word has at most maxTypos corrections, and maxParts words that contain it.
	maxTypos = 3
	maxParts = 6
	// minTypo and minFar are the minimum numbers of letters in a word for one and for two typos.
	minTypo = 4
	minFar  = 8
)

// correct finds alternatives for words that no chunk contains.
func (s *search) correct() error {
	left := maxCorrected
	for _, g := range s.request.groups {
		if g.count > 0 || !vocab.Learnable([]byte(g.surface)) {
			continue
		}
		if left--; left < 0 {
			return nil
		}
		if err := s.correctGroup(g); err != nil {
			return err
		}
	}
	return nil
}

// correctGroup finds alternatives for a word: two words that it is composed of, words that contain it, words it may be a
// typo of.
func (s *search) correctGroup(g *group) error {
	near, err := s.similar(g.surface)
	if err != nil {
		return err
	}
	halves, err := s.halves(g.surface)
	if err != nil {
		return err
	}
	g.alts = append(g.alts, halves...)
	for _, w := range near {
		alt := alternative{[]string{stemOf(w.text)}, typoWeight(g.surface)}
		if w.distance < 0 {
			alt.weight = weightPart
		}
		n, err := s.countMatch(alt.match())
		if err != nil {
			return err
		}
		if n == 0 || g.has(alt) { // no chunk contains it; the word has not been forgotten yet
			continue
		}
		if w.distance > 0 && s.found.Corrected[g.surface] == "" {
			if s.found.Corrected == nil {
				s.found.Corrected = map[string]string{}
			}
			s.found.Corrected[g.surface] = w.text
		}
		g.alts = append(g.alts, alt)
	}
	if len(g.alts) > 1 {
		g.alts = g.alts[1:]
		g.count, err = s.countMatch(g.match())
	}
	return err
}

func (g *group) has(alt alternative) bool {
	return slices.ContainsFunc(g.alts, func(a alternative) bool { return slices.Equal(a.stems, alt.stems) })
}

func stemOf(w string) string { return string(word.Stem(nil, []byte(w))) }

// halves returns a word such as connectionrefused as two known words, if it can be split that way.
func (s *search) halves(w string) ([]alternative, error) {
	for i := vocab.MinLearn; i+vocab.MinLearn <= len(w); i++ {
		if !utf8.RuneStart(w[i]) {
			continue
		}
		alt := alternative{[]string{stemOf(w[:i]), stemOf(w[i:])}, weightParts}
		var known bool
		err := s.tx.QueryRowContext(s.ctx, `SELECT EXISTS(SELECT 1 FROM words WHERE word = ?) AND
			EXISTS(SELECT 1 FROM words WHERE word = ?)`, w[:i], w[i:]).Scan(&known)
		if err != nil {
			return nil, err
		}
		if !known {
			continue
		}
		if n, err := s.countMatch(alt.match()); err != nil || n > 0 {
			return []alternative{alt}, err
		}
	}
	return nil, nil
}

// A similarWord is a word of the base that is similar to one in the query.
type similarWord struct {
	text     string
	distance int // -1: it contains the word in the query
}

// similar returns the words of the base that are similar to w, the most similar first.
func (s *search) similar(w string) ([]similarWord, error) {
	known, err := s.sharingTrigrams(w)
	if err != nil {
		return nil, err
	}
	var typos, parts []similarWord
	stem := stemOf(w)
	for _, k := range known {
		if strings.Contains(k, w) || len(stem) >= minTypo && strings.Contains(k, stem) {
			parts = append(parts, similarWord{k, -1})
		}
		if d := distance(w, stem, k); d <= typosOf(w) {
			typos = append(typos, similarWord{k, d})
		}
	}
	slices.SortStableFunc(typos, func(a, b similarWord) int { return cmp.Compare(a.distance, b.distance) })
	slices.SortStableFunc(parts, func(a, b similarWord) int { return cmp.Compare(len(a.text), len(b.text)) })
	for i, t := range typos {
		if t.distance > typos[0].distance || i == maxTypos {
			typos = typos[:i]
			break
		}
	}
	return append(typos, parts[:min(len(parts), maxParts)]...), nil
}

// typosOf returns how many typos a word may have.
func typosOf(w string) int {
	switch n := utf8.RuneCountInString(w); {
	case n >= minFar:
		return 2
	case n >= minTypo:
		return 1
	}
	return 0
}

// distance returns the distance of a word to one of the base, ignoring endings.
func distance(w, stem, known string) int {
	d := typos(w, known)
	if d <= 1 || stem == w {
		return d
	}
	return min(d, typos(stem, known), typos(stem, stemOf(known)))
}

// sharingTrigrams returns words that share trigrams with w, those that share most first.
func (s *search) sharingTrigrams(w string) ([]string, error) {
	shared := map[int64]int{}
	for _, gram := range trigrams(vocab.Padded(w)) {
		ids, err := db.Numbers(s.ctx, s.tx, "SELECT rowid FROM grams WHERE grams MATCH ? ORDER BY rowid DESC LIMIT ?",
			quote(gram), min(maxPerGram, maxGathered-s.gathered))
		if err != nil {
			return nil, err
		}
		s.gathered += len(ids)
		for _, id := range ids {
			shared[id]++
		}
	}
	ids := make([]int64, 0, len(shared))
	for id := range shared {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b int64) int {
		return cmp.Or(cmp.Compare(shared[b], shared[a]), cmp.Compare(b, a))
	})
	var known []string
	stmt, err := s.tx.PrepareContext(s.ctx, "SELECT word FROM words WHERE id = ?")
	if err != nil {
		return nil, err
	}
	defer func() { _ = stmt.Close() }()
	for _, id := range ids[:min(len(ids), maxCompared)] {
		var k string
		if err := stmt.QueryRowContext(s.ctx, id).Scan(&k); err != nil {
			return nil, db.AsDamage(err)
		}
		known = append(known, k)
	}
	return known, nil
}

// trigrams returns the distinct sequences of three letters in a word.
func trigrams(w string) []string {
	runes := []rune(w)
	var all []string
	for i := 0; i+3 <= len(runes); i++ {
		if g := string(runes[i : i+3]); !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// typos returns the edit distance of two words, with transpositions (optimal string alignment). Distances above 2 may be
// underestimated.
func typos(a, b string) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d > 2 || d < -2 {
		return 3
	}
	before, now, next := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range now {
		now[j] = j
	}
	for i := range x {
		next[0] = i + 1
		for j := range y {
			change := 1
			if x[i] == y[j] {
				change = 0
			}
			next[j+1] = min(now[j]+change, now[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, now, next = now, next, before
	}
	return now[len(y)]
}
