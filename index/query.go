package index

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"corral/index/word"
	"corral/internal/text"
)

const (
	// maxQuery and maxGroups bound what is looked at of a query's text.
	maxQuery  = 1 << 10
	maxGroups = 32
)

// A group is what one word of a query stands for: alternatives, any of which will do.
type group struct {
	surface string // as it was asked for, folded
	stem    string
	alts    []alternative
	count   int  // chunks that have it, at most maxMatches+1
	common  bool // they are more than maxMatches
}

// An alternative is stems that stand for a word together: one, mostly.
type alternative struct {
	stems  []string
	weight float64 // 1 for the word itself
}

// What other words are worth that stand for one.
const (
	weightParts = 0.9 // connection and refused, for connectionRefused
	weightTypo  = 0.8 // in a word of minFar letters or more. In one of minTypo it may as well be another word:
	weightShort = 0.3
	weightPart  = 0.6 // threadpool, for pool
)

// A request is a query's text as words.
type request struct {
	groups  []*group
	phrases [][]string // of stems
}

// parse finds the words and phrases of a text. It has no syntax that could be wrong: a quote without a second one is none.
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

// quoted divides a text at its quotes: what is between two has an odd index.
func quoted(text string) []string {
	parts := strings.Split(quotes.Replace(text), `"`)
	if n := len(parts); n%2 == 0 { // the last quote is alone
		parts = append(parts[:n-2], parts[n-2]+" "+parts[n-1])
	}
	return parts
}

// read adds the words of a text, and returns the stems of the whole ones.
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

// add adds a word, unless it is there; then it returns nil.
func (r *request) add(surface, stem string) *group {
	if slices.ContainsFunc(r.groups, func(g *group) bool { return g.stem == stem }) {
		return nil
	}
	g := &group{surface: surface, stem: stem, alts: []alternative{{[]string{stem}, 1}}}
	r.groups = append(r.groups, g)
	return g
}

// dropStops leaves out the words that tell nothing, if there are others.
func (r *request) dropStops() {
	rest := slices.DeleteFunc(slices.Clone(r.groups), func(g *group) bool { return word.Stop(g.surface) })
	if len(rest) > 0 {
		r.groups = rest
	}
}

// A match is an expression of FTS5 (sqlite.org/fts5.html). Whatever a stem is made of, it is quoted: no operator comes from
// a query.
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

// matchGroups joins groups by an operator.
func matchGroups(groups []*group, operator string) string {
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = g.match()
	}
	return strings.Join(parts, operator)
}

const (
	// nearWords is how many words may be between those that are near: about a line of a log.
	nearWords = 12
	// maxNear is how many words are looked for near each other.
	maxNear = 8
)

// matchNear is that all groups are near each other; "" if that cannot be said.
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

// typoWeight is what a word is worth that another one may be a typo of.
func typoWeight(w string) float64 {
	n := min(max(utf8.RuneCountInString(w), minTypo), minFar)
	return weightShort + (weightTypo-weightShort)*float64(n-minTypo)/(minFar-minTypo)
}
