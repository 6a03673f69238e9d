package logtest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// A Base is a searchable store of logs.
type Base interface {
	// Add adds the output of a run, and returns the name of the new source.
	Add(r io.Reader) (source string, err error)
	// Find searches one source, or all sources if source is "".
	Find(query, source string, limit int) ([]Hit, error)
}

// A Hit is a search result: some lines, and the one of them that is shown.
type Hit struct{ Text, Line string }

// A Score counts planted lines that were found.
type Score struct {
	Planted int
	Intent  int      // shown by the first intentHits hits in the run's own source
	Search  int      // contained in the first searchHits hits in all sources
	Later   int      // as Search, after laterRuns more runs
	Typo    int      // as Later, with a mistake in the query
	Missed  []string // lines that were not found, for messages
}

const (
	intentHits = 5
	searchHits = 3
	laterRuns  = 10
)

// Good reports whether a score suffices: of 48 lines, 46 are shown, all are found by searches, and 44 with a mistake.
func (s Score) Good() bool {
	return s.Intent*48 >= 46*s.Planted && s.Search == s.Planted && s.Later == s.Planted && s.Typo*48 >= 44*s.Planted
}

// Add adds the counts of another log.
func (s *Score) Add(o Score) {
	s.Planted += o.Planted
	s.Intent += o.Intent
	s.Search += o.Search
	s.Later += o.Later
	s.Typo += o.Typo
	s.Missed = append(s.Missed, o.Missed...)
}

// Measure adds a log to b, which must be empty, and returns how many of its planted lines are found. later returns the logs of
// later runs, which are added after the first searches.
func Measure(b Base, l *Log, seed uint64, later func(n int) io.Reader) (Score, error) {
	source, err := b.Add(bytes.NewReader(l.Text))
	if err != nil {
		return Score{}, err
	}
	m := measure{b: b, score: Score{Planted: len(l.Planted)}, l: l}
	shown := func(h Hit, p Planted) bool { return h.Line == p.Line }
	found := func(h Hit, p Planted) bool { return strings.Contains(h.Text, p.Line) }
	m.each("intent", &m.score.Intent, source, intentHits, shown, func(i int) string { return l.Planted[i].Intent })
	m.each("search", &m.score.Search, "", searchHits, found, func(i int) string { return l.Planted[i].Query })
	for n := range laterRuns {
		if m.err == nil {
			_, m.err = b.Add(later(n))
		}
	}
	m.each("later", &m.score.Later, "", searchHits, found, func(i int) string { return l.Planted[i].Query })
	m.each("typo", &m.score.Typo, "", searchHits, found, func(i int) string { return Typo(l.Planted[i].Query, seed<<8+uint64(i)) })
	return m.score, m.err
}

// MeasureKind measures a generated log with about size bytes. The later runs have the same size.
func MeasureKind(b Base, kind string, seed uint64, size, planted int) (Score, error) {
	return Measure(b, Make(kind, seed, size, planted), seed, func(n int) io.Reader {
		return io.LimitReader(Noise(kind, seed<<8+uint64(n)+1), int64(size))
	})
}

// MeasureReal measures the log of a real program. The later runs are the same without the planted lines.
func MeasureReal(b Base, l *Log) (Score, error) {
	return Measure(b, l, 1, func(int) io.Reader { return l.WithoutPlanted() })
}

// A measure is the state of Measure.
type measure struct {
	b     Base
	l     *Log
	score Score
	err   error
}

// each counts the planted lines whose query has a right hit.
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
