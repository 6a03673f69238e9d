package index

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"corral/internal/text"
)

const (
	// maxQuery bounds the bytes, and maxGroups the words, of a query's text.
	maxQuery  = 1 << 10
	maxGroups = 32
)

// A group is a word of a query with its alternatives, any of which matches.
type group struct {
	word   string // in lower case
	alts   []alternative
	count  int  // chunks that contain it, at most maxMatches+1
	common bool // count exceeds maxMatches
	weight float64
}

// An alternative is one or more words that together stand for a word.
type alternative struct {
	words  []string
	weight float64 // 1 for the word itself
}

// Weights of alternatives.
const (
	weightParts = 0.9 // connection and refused, for connectionRefused
	weightTypo  = 0.8 // in a word of at least minFar letters. A word of minTypo letters is more likely to be a different word:
	weightShort = 0.3
	weightPart  = 0.6 // threadpool, for pool
)

// parseQuery finds the words and phrases of a text. There is no invalid syntax: an unpaired quote is ignored.
func parseQuery(query string) (groups []*group, phrases []string) {
	for i, part := range quoted(text.Head(query, maxQuery)) {
		var words []string
		eachWord(part, func(word string) {
			words = append(words, word)
			g := groupOf(word)
			if !slices.ContainsFunc(groups, func(o *group) bool { return rootOf(o.word) == rootOf(g.word) }) {
				groups = append(groups, g)
			}
		})
		if i%2 == 1 && len(words) > 1 {
			phrases = append(phrases, quote(strings.Join(words, " ")))
		}
	}
	rest := slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return isStop(g.word) })
	if len(rest) > 0 {
		groups = rest
	}
	return groups[:min(len(groups), maxGroups)], phrases
}

func groupOf(word string) *group {
	g := &group{word: strings.ToLower(word)}
	parts := partsOf(word)
	if r, _ := utf8.DecodeRuneInString(word); !isSymbol(r) {
		g.alts = append(g.alts, alternative{[]string{g.word}, 1})
	}
	if len(parts) > 1 || len(g.alts) == 0 {
		g.alts = append(g.alts, alternative{parts, weightParts})
	}
	return g
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

// match returns an FTS5 expression (sqlite.org/fts5.html). All words are quoted, so a query cannot contain operators.
func (a alternative) match() string {
	parts := make([]string, len(a.words))
	for i, s := range a.words {
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
		if len(g.alts[0].words) > 1 {
			return ""
		}
		parts[i] = quote(g.alts[0].words[0])
	}
	return fmt.Sprintf("NEAR(%s, %d)", strings.Join(parts, " "), nearWords)
}

// typoWeight returns the weight of a word that w may be a typo of.
func typoWeight(w string) float64 {
	n := min(max(utf8.RuneCountInString(w), minTypo), minFar)
	return weightShort + (weightTypo-weightShort)*float64(n-minTypo)/(minFar-minTypo)
}
