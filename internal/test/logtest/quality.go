package logtest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// A Base is what finds lines again.
type Base interface {
	// Add adds what a run wrote, and returns the name that it is found by.
	Add(r io.Reader) (source string, err error)
	// Find finds some of it: of one source, or of all for "".
	Find(query, source string, limit int) ([]Hit, error)
}

// A Hit is what was found: some lines, and the one of them that is shown.
type Hit struct{ Text, Line string }

// A Score is how many lines were found.
type Score struct {
	Planted int
	Intent  int      // are among the lines that the first intentHits show, of the run alone
	Search  int      // are in the first searchHits
	Later   int      // are so after laterRuns more runs
	Typo    int      // are so even then with a mistake in the query
	Missed  []string // what was not found, for people
}

const (
	intentHits = 5
	searchHits = 3
	laterRuns  = 10
)

// Good says whether a score is as it has to be: of 48, 46 in what is shown, all by searches, 44 with a mistake.
func (s Score) Good() bool {
	return s.Intent*48 >= 46*s.Planted && s.Search == s.Planted && s.Later == s.Planted && s.Typo*48 >= 44*s.Planted
}

// Measure adds a log of a kind, of about so many bytes, with so many lines planted, and says how many of these are found
// in a base that was empty. The runs after it are as long.
func Measure(b Base, kind string, seed uint64, size, planted int) (Score, error) {
	l := Make(kind, seed, size, planted)
	source, err := b.Add(bytes.NewReader(l.Text))
	if err != nil {
		return Score{}, err
	}
	m := measure{b: b, score: Score{Planted: planted}, l: l}
	shown := func(h Hit, p Planted) bool { return h.Line == p.Line }
	found := func(h Hit, p Planted) bool { return strings.Contains(h.Text, p.Line) }
	m.each("intent", &m.score.Intent, source, intentHits, shown, func(i int) string { return l.Planted[i].Intent })
	m.each("search", &m.score.Search, "", searchHits, found, func(i int) string { return l.Planted[i].Query })
	for n := range laterRuns {
		if m.err == nil {
			_, m.err = b.Add(io.LimitReader(Noise(kind, seed<<8+uint64(n)+1), int64(size)))
		}
	}
	m.each("later", &m.score.Later, "", searchHits, found, func(i int) string { return l.Planted[i].Query })
	m.each("typo", &m.score.Typo, "", searchHits, found, func(i int) string { return Typo(l.Planted[i].Query, seed<<8+uint64(i)) })
	return m.score, m.err
}

// A measure is one Measure on its way.
type measure struct {
	b     Base
	l     *Log
	score Score
	err   error
}

// each counts for how many of the planted lines a query has a hit that is right.
func (m *measure) each(what string, count *int, source string, limit int, right func(Hit, Planted) bool, query func(int) string) {
	for i, p := range m.l.Planted {
		if m.err != nil {
			return
		}
		var hits []Hit
		if hits, m.err = m.b.Find(query(i), source, limit); m.err != nil {
			return
		}
		if has(hits, p, right) {
			*count++
			continue
		}
		missed := fmt.Sprintf("%s: %q of %d %q", what, query(i), p.Number, p.Line)
		for _, h := range hits {
			missed += fmt.Sprintf("\n\tinstead: %q", h.Line)
		}
		m.score.Missed = append(m.score.Missed, missed)
	}
}

func has(hits []Hit, p Planted, right func(Hit, Planted) bool) bool {
	for _, h := range hits {
		if right(h, p) {
			return true
		}
	}
	return false
}
