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
	word     []byte // current word, at most longestTerm+1 bytes
	n        int64  // bytes read
	names    termTally
	troubles termTally
	seen     [1024]seenTerm // words of the current unit, by hash
}

// seen is the hash of a word and the unit in which it last occurred.
type seenTerm struct {
	hash uint32
	unit uint32
}

// A tally counts up to limit words.
type termTally struct {
	limit  int
	counts map[string]int64
}

// newTopTerms returns empty topTerms.
func newTopTerms() *topTerms {
	return &topTerms{names: termTally{maxTermNames, map[string]int64{}}, troubles: termTally{maxTroubles, map[string]int64{}}}
}

// inTerm marks the bytes of terms: those of words, and those that join words.
var inTerm = func() (t [256]bool) {
	t = inWord
	for _, c := range ".-" {
		t[c] = true
	}
	return t
}()

// write processes the next piece of clean text.
func (t *topTerms) write(p []byte) {
	for i := 0; i < len(p); {
		if !inTerm[p[i]] {
			t.endWord(t.word)
			t.word = t.word[:0]
			i++
			for i < len(p) && !inTerm[p[i]] {
				i++
			}
			continue
		}
		from := i
		for i < len(p) && inTerm[p[i]] {
			i++
		}
		w := p[from:i]
		if len(t.word) == 0 && i < len(p) { // fast path: most words are not split between pieces
			t.endWord(w)
			continue
		}
		t.word = append(t.word, w[:min(len(w), longestTerm+1-len(t.word))]...)
	}
}

func (t *topTerms) endWord(w []byte) {
	if len(w) > 0 {
		t.n += int64(min(len(w), longestTerm+1)) + 1
		t.count(w)
	}
}

// count counts a word once per unit.
func (t *topTerms) count(w []byte) {
	if len(w) > longestTerm { // it may have been truncated
		return
	}
	for len(w) > 0 && !letterOrDigit(w[len(w)-1]) && w[len(w)-1] < 0x80 {
		w = w[:len(w)-1]
	}
	for len(w) > 0 && !letterOrDigit(w[0]) && w[0] < 0x80 {
		w = w[1:]
	}
	if len(w) < shortestTerm {
		return
	}
	h := uint32(2166136261) // FNV-1a
	for _, c := range w {
		h = (h ^ uint32(c)) * 16777619
	}
	unit := uint32(t.n/termUnit) + 1
	was, now := &t.seen[h%uint32(len(t.seen))], seenTerm{h, unit}
	if *was == now {
		return
	}
	*was = now
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
func (t *termTally) again(w []byte) bool {
	n, ok := t.counts[string(w)]
	if ok {
		t.counts[string(w)] = n + 1
	}
	return ok
}

// add adds a word that is not in the tally, or if the tally is full, decrements all counts.
func (t *termTally) add(w []byte) {
	if len(t.counts) < t.limit {
		t.counts[string(w)] = 1
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
func sortOf(w []byte) termSort {
	s := spellingOf(w)
	switch {
	case s.letters < 3 || w[0] == '0' || s.digits > s.letters || s.digits > 0 && s.hex+s.joints == len(w):
		return noise // a number, a time, a hash
	case s.digits > 3 && s.joints == 0:
		return noise // an id
	}
	lower := strings.ToLower(string(w))
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

func spellingOf(w []byte) (s spelling) {
	for i, c := range w {
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
func (s *spelling) countLetter(w []byte, i int) {
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
	t.endWord(t.word)
	t.word = t.word[:0]
	type scored struct {
		word  string
		score float64
	}
	units := float64(t.n/termUnit + 1)
	var all []scored
	for _, tally := range [...]*termTally{&t.names, &t.troubles} {
		for w, count := range tally.counts {
			c := float64(count)
			all = append(all, scored{w, termWeights[sortOf([]byte(w))] * math.Log1p(c) * math.Log1p(units/c)})
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
