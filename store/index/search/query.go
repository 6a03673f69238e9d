package search

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"corral/internal/text"
	"corral/store/index/word"
)

const (
	// maxQuery bounds the bytes, and maxGroups the words, of a query's text.
	maxQuery  = 1 << 10
	maxGroups = 32
)

// A group is a word of a query with its alternatives, any of which matches.
type group struct {
	surface string // folded word from the query
	stem    string
	alts    []alternative
	count   int  // chunks that contain it, at most maxMatches+1
	common  bool // count exceeds maxMatches
}

// An alternative is one or more stems that together stand for a word.
type alternative struct {
	stems  []string
	weight float64 // 1 for the word itself
}

// Weights of alternatives.
const (
	weightParts = 0.9 // connection and refused, for connectionRefused
	weightTypo  = 0.8 // in a word of at least minFar letters. A word of minTypo letters is more likely to be a different word:
	weightShort = 0.3
	weightPart  = 0.6 // threadpool, for pool
)

// A request is a parsed query text.
type request struct {
	groups  []*group
	phrases [][]string // stems
}

// parse finds the words and phrases of a text. There is no invalid syntax: an unpaired quote is ignored.
func parse(query string) request {
	query = text.Head(query, maxQuery)
	var r request
	for i, part := range quoted(query) {
		words := r.read(part)
		if i%2 == 1 && len(words) > 1 {
			r.phrases = append(r.phrases, words)
		}
	}
	r.dropStops()
	if len(r.groups) > maxGroups {
		r.groups = r.groups[:maxGroups]
	}
	return r
}

var quotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "«", `"`, "»", `"`)

// quoted splits a text at its quotes: parts with an odd index were quoted.
func quoted(text string) []string {
	parts := strings.Split(quotes.Replace(text), `"`)
	if n := len(parts); n%2 == 0 { // the last quote is unpaired
		parts = append(parts[:n-2], parts[n-2]+" "+parts[n-1])
	}
	return parts
}

// read adds the words of a text, and returns the stems of the whole words.
func (r *request) read(text string) []string {
	var s word.Scanner
	var stems []string
	var last *group
	var parts []string
	end := func() {
		if last != nil && len(parts) > 1 {
			last.alts = append(last.alts, alternative{parts, weightParts})
		}
		last, parts = nil, nil
	}
	for s.Reset(text); s.Next(); {
		stem := string(word.Stem(nil, s.Word()))
		if s.Part {
			parts = append(parts, stem)
			continue
		}
		end()
		stems = append(stems, stem)
		last = r.add(string(s.Word()), stem)
	}
	end()
	return stems
}

// add adds a word. It returns nil if it is a duplicate.
func (r *request) add(surface, stem string) *group {
	if slices.ContainsFunc(r.groups, func(g *group) bool { return g.stem == stem }) {
		return nil
	}
	g := &group{surface: surface, stem: stem, alts: []alternative{{[]string{stem}, 1}}}
	r.groups = append(r.groups, g)
	return g
}

// dropStops removes stop words, if there are other words.
func (r *request) dropStops() {
	rest := slices.DeleteFunc(slices.Clone(r.groups), func(g *group) bool { return word.Stop(g.surface) })
	if len(rest) > 0 {
		r.groups = rest
	}
}

// match returns an FTS5 expression (sqlite.org/fts5.html). All stems are quoted, so a query cannot contain operators.
func (a alternative) match() string {
	parts := make([]string, len(a.stems))
	for i, s := range a.stems {
		parts[i] = quote(s)
	}
	return "(" + strings.Join(parts, " AND ") + ")"
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func (g *group) match() string {
	parts := make([]string, len(g.alts))
	for i, a := range g.alts {
		parts[i] = a.match()
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

// matchGroups joins groups with an operator.
func matchGroups(groups []*group, operator string) string {
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = g.match()
	}
	return strings.Join(parts, operator)
}

const (
	// nearWords is the maximum number of words between those that count as near: about a line of a log.
	nearWords = 12
	// maxNear is the maximum number of words that are searched for near each other.
	maxNear = 8
)

// matchNear returns an expression for all groups near each other, or "" if FTS5 cannot express it.
func matchNear(groups []*group) string {
	if len(groups) < 2 || len(groups) > maxNear {
		return ""
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		if len(g.alts[0].stems) > 1 {
			return ""
		}
		parts[i] = quote(g.alts[0].stems[0])
	}
	return fmt.Sprintf("NEAR(%s, %d)", strings.Join(parts, " "), nearWords)
}

// typoWeight returns the weight of a word that w may be a typo of.
func typoWeight(w string) float64 {
	n := min(max(utf8.RuneCountInString(w), minTypo), minFar)
	return weightShort + (weightTypo-weightShort)*float64(n-minTypo)/(minFar-minTypo)
}
