package index

import (
	"math"
	"slices"
	"strings"

	"corral/index/word"
)

// A matcher looks for a request's words in texts.
type matcher struct {
	stems   map[string][]meaning
	words   map[string][]meaning // those of words that were looked at, nil of others
	weights []float64            // of groups: what is rare tells more
	phrases [][]string           // of stems

	// Of the text that is looked at:
	scan   word.Scanner
	stem   []byte
	line   []float64 // by group, how well it is matched in this line
	chunk  []float64 // and in the text and title
	places []place
}

// A meaning is a group that a stem is of.
type meaning struct {
	group  int
	weight float64
}

// A place is a word of the text that is of a group.
type place struct{ group, at int }

// A score is how well a chunk matches.
type score struct {
	total     float64
	lineTotal float64 // of its best line
	line      int     // the number of that, from 0
	phrases   int     // how many it has
	all       bool    // it has all words
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

// What parts of a score count, beside the words of the best line, each by its weight.
const (
	chunkShare = 0.5 // words anywhere in text and title
	nearShare  = 0.5 // all of them within few words
	maxPlaces  = 2000
	nearHalf   = 10 // so many words between have nearness half
)

// score looks at a chunk.
func (m *matcher) score(title, text string) score {
	clear(m.chunk)
	m.places = m.places[:0]
	m.look(title, nil)
	var s score
	at, n := 0, 0
	for line := range strings.Lines(text) {
		clear(m.line)
		at += m.look(line, &at) + 1
		if t := m.sum(m.line); t > s.lineTotal {
			s.lineTotal, s.line = t, n
		}
		n++
	}
	s.total = s.lineTotal + chunkShare*m.sum(m.chunk) + nearShare*m.nearness()
	s.all = !slices.Contains(m.chunk, 0)
	for _, p := range m.phrases {
		if m.hasPhrase(title, p) || m.hasPhrase(text, p) {
			s.phrases++
		}
	}
	return s
}

// look counts the words of a line, or of a title, which is no line and has no places.
func (m *matcher) look(text string, at *int) (words int) {
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
			if len(m.places) < maxPlaces {
				m.places = append(m.places, place{of.group, *at + words})
			}
		}
	}
	return words
}

// maxMeanings is of how many words it is kept what they mean.
const maxMeanings = 1 << 14

// meanings returns what a folded word is of the request.
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

// sum adds what is matched, by weight.
func (m *matcher) sum(matched []float64) float64 {
	var t float64
	for g, part := range matched {
		t += part * m.weights[g]
	}
	return t
}

// all is the sum if everything is matched.
func (m *matcher) all() float64 {
	var t float64
	for _, w := range m.weights {
		t += w
	}
	return t
}

// nearness is up to the sum of all weights, the less words there are in the smallest stretch that has all groups in it; 0 if
// there is none.
func (m *matcher) nearness() float64 {
	if len(m.weights) < 2 {
		return 0
	}
	counts := make([]int, len(m.weights))
	have, first, least := 0, 0, math.MaxInt
	for _, p := range m.places {
		if counts[p.group]++; counts[p.group] == 1 {
			have++
		}
		for have == len(counts) {
			f := m.places[first]
			least = min(least, p.at-f.at+1-len(counts))
			if counts[f.group]--; counts[f.group] == 0 {
				have--
			}
			first++
		}
	}
	if least == math.MaxInt {
		return 0
	}
	return m.all() * nearHalf / float64(nearHalf+max(least, 0))
}

// hasPhrase says whether a text has stems one after the other.
func (m *matcher) hasPhrase(text string, phrase []string) bool {
	var last []string // the last words, as many as the phrase has at most
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

// show sets what of a hit depends on the query.
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
