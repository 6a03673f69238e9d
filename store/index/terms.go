package index

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const (
	longestTerm  = 40
	shortestTerm = 4
	termUnit     = 2 << 10 // bytes of text in which a term counts once
	maxTermNames = 4096    // maximum number of identifiers and words that are counted
	maxTroubles  = 512     // maximum number of error words, counted separately so that the others cannot evict them
	perFamily    = 3       // terms that differ only in their digits
)

// topTerms finds the words that distinguish a stream from others: identifiers (module_200, io.EOF, NullPointerException),
// words for errors, and words that are frequent but not everywhere. Numbers, hashes and times are excluded.
//
// It counts in how many units of the stream a word occurs, with the algorithm of J. Misra and D. Gries (Finding repeated
// elements, 1982). So memory is bounded, a word that occurs in more than one of maxTermNames units is never lost, and the
// result is deterministic.
type topTerms struct {
	n        int64 // bytes of words
	names    termTally
	troubles termTally
	unit     int64           // the current one
	seen     map[string]bool // words in it
}

// A tally counts up to limit words.
type termTally struct {
	limit  int
	counts map[string]int64
}

// newTopTerms returns empty topTerms.
func newTopTerms() *topTerms {
	return &topTerms{
		names: termTally{maxTermNames, map[string]int64{}}, troubles: termTally{maxTroubles, map[string]int64{}},
		seen: map[string]bool{},
	}
}

// outsideTerm reports whether a rune separates terms: it is neither in words nor joins them.
func outsideTerm(r rune) bool { return r < 0x80 && !inWord[r] && r != '.' && r != '-' }

// see counts the words of the next chunk's text, each once per unit.
func (t *topTerms) see(text string) {
	for w := range strings.FieldsFuncSeq(text, outsideTerm) {
		t.n += int64(min(len(w), longestTerm+1)) + 1
		if unit := t.n / termUnit; unit != t.unit {
			t.unit = unit
			clear(t.seen)
		}
		w = strings.TrimFunc(w, func(r rune) bool { return r < 0x80 && !letterOrDigit(byte(r)) })
		if len(w) < shortestTerm || len(w) > longestTerm || t.seen[w] {
			continue
		}
		t.seen[w] = true
		t.count(w)
	}
}

// count counts a word.
func (t *topTerms) count(w string) {
	if t.names.again(w) || t.troubles.again(w) {
		return
	}
	switch sortOf(w) {
	case troubleTerm:
		t.troubles.add(w)
	case nameTerm, wordTerm:
		t.names.add(w)
	}
}

// again counts a word that is in the tally, and reports whether it is.
func (t *termTally) again(w string) bool {
	n, ok := t.counts[w]
	if ok {
		t.counts[w] = n + 1
	}
	return ok
}

// add adds a word that is not in the tally, or if the tally is full, decrements all counts.
func (t *termTally) add(w string) {
	if len(t.counts) < t.limit {
		t.counts[strings.Clone(w)] = 1
		return
	}
	for k, n := range t.counts {
		if n == 1 {
			delete(t.counts, k)
		} else {
			t.counts[k] = n - 1
		}
	}
}

// Sorts of words, the least distinctive first.
type termSort uint8

const (
	noise termSort = iota
	wordTerm
	nameTerm
	troubleTerm
)

// weights are the weights of the sorts.
var termWeights = [...]float64{wordTerm: 1, nameTerm: 2, troubleTerm: 4}

// troubles are parts of words for errors, in lower case.
var troubleWords = [...]string{
	"error", "exception", "fail", "fatal", "panic", "denied", "refused", "timeout", "timed", "crash", "abort", "killed",
	"segfault", "unreachable", "corrupt", "invalid", "missing", "overflow", "deadlock", "rejected", "evicted", "backoff", "oom",
	"traceback", "undefined", "conflict", "expired",
}

// common are words that do not distinguish streams.
var commonTerms = map[string]bool{
	"that": true, "this": true, "with": true, "from": true, "have": true, "will": true, "been": true, "were": true,
	"your": true, "than": true, "then": true, "they": true, "which": true, "when": true, "into": true, "info": true,
	"debug": true, "trace": true, "notice": true, "warn": true, "warning": true, "true": true, "false": true, "null": true,
	"none": true, "http": true, "https": true, "error": true, "errors": true, "exception": true, "failed": true,
}

// sortOf classifies a word.
func sortOf(w string) termSort {
	s := spellingOf(w)
	switch {
	case s.letters < 3 || w[0] == '0' || s.digits > s.letters || s.digits > 0 && s.hex+s.joints == len(w):
		return noise // a number, a time, a hash
	case s.digits > 3 && s.joints == 0:
		return noise // an id
	}
	lower := strings.ToLower(w)
	if commonTerms[lower] {
		return noise
	}
	for _, s := range troubleWords {
		if strings.Contains(lower, s) {
			return troubleTerm
		}
	}
	if s.joints > 0 && s.letters >= 2*s.joints || s.humps > 0 || s.digits > 0 && s.upper < s.letters {
		return nameTerm
	}
	return wordTerm
}

// A spelling counts the bytes of a word, by kind.
type spelling struct {
	letters, digits int
	upper           int // letters A to Z
	hex             int // digits, and letters A to F in either case
	joints          int // bytes that join parts of a name: _ . -
	humps           int // A to Z after a to z, as in camelCase
}

func spellingOf(w string) (s spelling) {
	for i, c := range []byte(w) {
		switch {
		case c >= '0' && c <= '9':
			s.digits++
			s.hex++
		case c == '_', c == '.', c == '-':
			s.joints++
		default:
			s.letters++
			if letter(c) {
				s.countLetter(w, i)
			}
		}
	}
	return s
}

// countLetter counts w[i], an ASCII letter, beyond letters.
func (s *spelling) countLetter(w string, i int) {
	c := w[i]
	if c|0x20 <= 'f' {
		s.hex++
	}
	if c < 'a' {
		s.upper++
		if i > 0 && w[i-1] >= 'a' && w[i-1] <= 'z' {
			s.humps++
		}
	}
}

// Best returns at most n terms, the most distinctive first. The result is the same for the same stream.
func (t *topTerms) Best(n int) []string {
	type scored struct {
		word  string
		score float64
	}
	units := float64(t.n/termUnit + 1)
	var all []scored
	for _, tally := range [...]*termTally{&t.names, &t.troubles} {
		for w, count := range tally.counts {
			c := float64(count)
			all = append(all, scored{w, termWeights[sortOf(w)] * math.Log1p(c) * math.Log1p(units/c)})
		}
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.word, b.word))
	})
	var best []string
	families := map[string]int{}
	for _, s := range all {
		if len(best) == n {
			break
		}
		same := func(b string) bool { return strings.EqualFold(b, s.word) }
		f := termFamily(s.word)
		if families[f]++; families[f] <= perFamily && !slices.ContainsFunc(best, same) {
			best = append(best, s.word)
		}
	}
	return best
}

// family returns a word without its digits.
func termFamily(w string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, w)
}
