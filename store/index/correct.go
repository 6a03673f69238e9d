package index

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
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
	for _, g := range s.groups {
		if g.count > 0 || !learnable(g.word) {
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
	near, err := s.similar(g.word)
	if err != nil {
		return err
	}
	halves, err := s.halves(g.word)
	if err != nil {
		return err
	}
	g.alts = append(g.alts, halves...)
	for _, w := range near {
		alt := alternative{[]string{w.text}, typoWeight(g.word)}
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
		if w.distance > 0 && s.found.Corrected[g.word] == "" {
			if s.found.Corrected == nil {
				s.found.Corrected = map[string]string{}
			}
			s.found.Corrected[g.word] = w.text
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
	return slices.ContainsFunc(g.alts, func(a alternative) bool { return slices.Equal(a.words, alt.words) })
}

// rootOf returns a word without an ending that it may have.
func rootOf(w string) string {
	for _, ending := range []string{"ing", "ed", "es", "s"} {
		if root, ok := strings.CutSuffix(w, ending); ok && len(root) >= minTypo {
			return root
		}
	}
	return w
}

// halves returns a word such as connectionrefused as two known words, if it can be split that way.
func (s *search) halves(w string) ([]alternative, error) {
	for i := minLearn; i+minLearn <= len(w); i++ {
		if !utf8.RuneStart(w[i]) {
			continue
		}
		alt := alternative{[]string{w[:i], w[i:]}, weightParts}
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
	root := rootOf(w)
	for _, k := range known {
		if strings.Contains(k, w) || strings.Contains(k, root) {
			parts = append(parts, similarWord{k, -1})
		}
		if d := distance(w, root, k); d <= typosOf(w) {
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
func distance(w, root, known string) int {
	if d := typos(w, known); d <= 1 {
		return d
	}
	return min(typos(w, known), typos(root, known), typos(root, rootOf(known)))
}

// sharingTrigrams returns words that share trigrams with w, those that share most first.
func (s *search) sharingTrigrams(w string) ([]string, error) {
	grams := trigrams("^^" + w + "$$")
	limit := min(maxPerGram, (maxGathered-s.gathered)/len(grams))
	s.gathered += limit * len(grams)
	newest := strings.Repeat(" UNION ALL SELECT * FROM (SELECT rowid AS id FROM grams WHERE grams MATCH ? ORDER BY rowid DESC LIMIT ?)", len(grams))
	var args []any
	for _, g := range grams {
		args = append(args, quote(g), limit)
	}
	return column[string](s.ctx, s.tx, `SELECT word FROM words JOIN (
		SELECT id, count(*) AS shared FROM (`+strings.TrimPrefix(newest, " UNION ALL ")+`) GROUP BY id ORDER BY shared DESC, id DESC LIMIT ?)
		USING (id) ORDER BY shared DESC, id DESC`, append(args, maxCompared)...)
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
