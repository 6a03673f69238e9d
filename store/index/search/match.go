package search

import (
	"math"
	"slices"
	"strings"

	"corral/store/index/word"
)

// A matcher scores texts by the words of a request.
type matcher struct {
	stems   map[string][]meaning
	words   map[string][]meaning // cache by word; nil for words that are not in the request
	weights []float64            // per group: rare words weigh more
	phrases [][]string           // stems

	// State for the current text:
	scan        word.Scanner
	stem        []byte
	line        []float64 // per group, how well this line matches it
	chunk       []float64 // per group, how well title and text match it
	occurrences []occurrence
}

// A meaning refers to a group that contains a stem.
type meaning struct {
	group  int
	weight float64
}

// An occurrence is a word of the text that belongs to a group. at is its position in words.
type occurrence struct{ group, at int }

// A score rates how well a chunk matches.
type score struct {
	total     float64
	lineTotal float64 // of its best line
	line      int     // index of the best line, from 0
	phrases   int     // number of matched phrases
	all       bool    // it contains all words
}

func newMatcher(r request, chunks int64) *matcher {
	m := &matcher{stems: map[string][]meaning{}, words: map[string][]meaning{}, phrases: r.phrases}
	for i, g := range r.groups {
		for _, alt := range g.alts {
			for _, stem := range alt.stems {
				m.stems[stem] = append(m.stems[stem], meaning{i, alt.weight / float64(len(alt.stems))})
			}
		}
		n := float64(g.count)
		m.weights = append(m.weights, math.Log(1+(max(float64(chunks)-n, 0)+0.5)/(n+0.5)))
	}
	m.line, m.chunk = make([]float64, len(r.groups)), make([]float64, len(r.groups))
	return m
}

// Shares of the parts of a score, relative to the words of the best line.
const (
	chunkShare     = 0.5 // words anywhere in title and text
	nearShare      = 0.5 // all of them close together
	maxOccurrences = 2000
	halfProximity  = 10 // number of words in between that halves the proximity
)

// score rates a chunk.
func (m *matcher) score(title, text string) score {
	clear(m.chunk)
	m.occurrences = m.occurrences[:0]
	m.countWords(title, nil)
	var s score
	at, n := 0, 0
	for line := range strings.Lines(text) {
		clear(m.line)
		at += m.countWords(line, &at) + 1
		if t := m.sum(m.line); t > s.lineTotal {
			s.lineTotal, s.line = t, n
		}
		n++
	}
	s.total = s.lineTotal + chunkShare*m.sum(m.chunk) + nearShare*m.proximity()
	s.all = !slices.Contains(m.chunk, 0)
	for _, p := range m.phrases {
		if m.hasPhrase(title, p) || m.hasPhrase(text, p) {
			s.phrases++
		}
	}
	return s
}

// countWords counts the words of a line, or of a title if at is nil. A title belongs to no line and has no positions.
func (m *matcher) countWords(text string, at *int) (words int) {
	m.scan.Reset(text)
	for m.scan.Next() {
		if !m.scan.Part {
			words++
		}
		for _, of := range m.meanings(m.scan.Word()) {
			m.chunk[of.group] = min(1, m.chunk[of.group]+of.weight)
			if at == nil {
				continue
			}
			m.line[of.group] = min(1, m.line[of.group]+of.weight)
			if len(m.occurrences) < maxOccurrences {
				m.occurrences = append(m.occurrences, occurrence{of.group, *at + words})
			}
		}
	}
	return words
}

// maxMeanings is the maximum number of words in the cache.
const maxMeanings = 1 << 14

// meanings returns the groups of the request that contain a folded word.
func (m *matcher) meanings(w []byte) []meaning {
	if of, ok := m.words[string(w)]; ok {
		return of
	}
	m.stem = word.Stem(m.stem[:0], w)
	of := m.stems[string(m.stem)]
	if len(m.words) < maxMeanings {
		m.words[string(w)] = of
	}
	return of
}

// sum returns the weighted sum of what is matched.
func (m *matcher) sum(matched []float64) float64 {
	var t float64
	for g, part := range matched {
		t += part * m.weights[g]
	}
	return t
}

// all returns the sum if everything is matched.
func (m *matcher) all() float64 {
	var t float64
	for _, w := range m.weights {
		t += w
	}
	return t
}

// proximity rates the shortest stretch of words that contains all groups: the sum of all weights for adjacent words, less
// with more words in between, and 0 if there is none.
func (m *matcher) proximity() float64 {
	if len(m.weights) < 2 {
		return 0
	}
	counts := make([]int, len(m.weights))
	have, first, shortest := 0, 0, math.MaxInt
	for _, p := range m.occurrences {
		if counts[p.group]++; counts[p.group] == 1 {
			have++
		}
		for have == len(counts) {
			f := m.occurrences[first]
			shortest = min(shortest, p.at-f.at+1-len(counts))
			if counts[f.group]--; counts[f.group] == 0 {
				have--
			}
			first++
		}
	}
	if shortest == math.MaxInt {
		return 0
	}
	return m.all() * halfProximity / float64(halfProximity+max(shortest, 0))
}

// hasPhrase reports whether a text contains consecutive words with these stems.
func (m *matcher) hasPhrase(text string, phrase []string) bool {
	var last []string // the last words, at most as many as in the phrase
	m.scan.Reset(text)
	for m.scan.Next() {
		if m.scan.Part {
			continue
		}
		m.stem = word.Stem(m.stem[:0], m.scan.Word())
		if len(last) == len(phrase) {
			copy(last, last[1:])
			last = last[:len(last)-1]
		}
		last = append(last, string(m.stem))
		if slices.Equal(last, phrase) {
			return true
		}
	}
	return false
}

// show sets the fields of a hit that depend on the query.
func (m *matcher) show(h *Hit, line int) {
	h.LineNumber = h.LineStart
	n := 0
	for l := range strings.Lines(h.Text) {
		if n == line {
			h.Line = strings.TrimRight(l, "\r\n")
			break
		}
		n++
	}
	h.LineNumber = min(h.LineStart+int64(n), h.LineEnd)
	m.scan.Reset(h.Text)
	for m.scan.Next() {
		if len(m.meanings(m.scan.Word())) == 0 {
			continue
		}
		if k := len(h.Marks); k > 0 && m.scan.Start < h.Marks[k-1][1] {
			h.Marks[k-1][1] = max(h.Marks[k-1][1], m.scan.End)
			continue
		}
		h.Marks = append(h.Marks, [2]int{m.scan.Start, m.scan.End})
	}
}
