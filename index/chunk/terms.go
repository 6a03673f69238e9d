package chunk

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
	maxNames     = 4096    // terms that are counted: identifiers and words
	maxTroubles  = 512     // and words of errors, which must not be lost among those
	perFamily    = 3       // terms that differ in their digits alone
)

// Terms finds the words that tell a stream from others: identifiers (module_200, io.EOF, NullPointerException), words of
// errors, and other words that are frequent but not everywhere. Numbers, hashes and times are none.
//
// It counts in how many units of the stream a word is, with the algorithm of J. Misra and D. Gries (Finding repeated
// elements, 1982): memory is bounded, a word that is in more than one of maxNames units is never lost, and the same stream
// has the same terms.
type Terms struct {
	word     []byte // that is being read, longestTerm bytes at most and one
	n        int64  // bytes read
	names    tally
	troubles tally
	seen     [1024]seen // of this unit, by a hash
}

// seen is a word, by its hash, and the unit it was last seen in.
type seen struct {
	hash uint32
	unit uint32
}

// A tally counts words, at most most of them.
type tally struct {
	most   int
	counts map[string]int64
}

// NewTerms returns Terms that have seen nothing.
func NewTerms() *Terms {
	return &Terms{names: tally{maxNames, map[string]int64{}}, troubles: tally{maxTroubles, map[string]int64{}}}
}

// inTerm are the bytes of terms: those of words, and what joins words.
var inTerm = func() (t [256]bool) {
	t = inWord
	for _, c := range ".-" {
		t[c] = true
	}
	return t
}()

// write reads the next piece of clean text.
func (t *Terms) write(p []byte) {
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
		if len(t.word) == 0 && i < len(p) { // most words are whole
			t.endWord(w)
			continue
		}
		t.word = append(t.word, w[:min(len(w), longestTerm+1-len(t.word))]...)
	}
}

func (t *Terms) endWord(w []byte) {
	if len(w) > 0 {
		t.n += int64(min(len(w), longestTerm+1)) + 1
		t.count(w)
	}
}

// count counts a word, once in a unit.
func (t *Terms) count(w []byte) {
	if len(w) > longestTerm { // of which only so much may be known
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
	was, now := &t.seen[h%uint32(len(t.seen))], seen{h, unit}
	if *was == now {
		return
	}
	*was = now
	if t.names.again(w) || t.troubles.again(w) {
		return
	}
	switch sortOf(w) {
	case trouble:
		t.troubles.add(w)
	case name, word:
		t.names.add(w)
	}
}

// again counts a word that is counted already.
func (t *tally) again(w []byte) bool {
	n, ok := t.counts[string(w)]
	if ok {
		t.counts[string(w)] = n + 1
	}
	return ok
}

// add counts a word that is not counted yet, or makes room.
func (t *tally) add(w []byte) {
	if len(t.counts) < t.most {
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

// What a word is, the less telling first.
type sort uint8

const (
	noise sort = iota
	word
	name
	trouble
)

// weights are what sorts of words count for.
var weights = [...]float64{word: 1, name: 2, trouble: 4}

// troubles are in words that tell of one, in lower case.
var troubles = [...]string{
	"error", "exception", "fail", "fatal", "panic", "denied", "refused", "timeout", "timed", "crash", "abort", "killed",
	"segfault", "unreachable", "corrupt", "invalid", "missing", "overflow", "deadlock", "rejected", "evicted", "backoff", "oom",
	"traceback", "undefined", "conflict", "expired",
}

// common are words that tell nothing of a stream.
var common = map[string]bool{
	"that": true, "this": true, "with": true, "from": true, "have": true, "will": true, "been": true, "were": true,
	"your": true, "than": true, "then": true, "they": true, "which": true, "when": true, "into": true, "info": true,
	"debug": true, "trace": true, "notice": true, "warn": true, "warning": true, "true": true, "false": true, "null": true,
	"none": true, "http": true, "https": true, "error": true, "errors": true, "exception": true, "failed": true,
}

// sortOf says what a word is.
func sortOf(w []byte) sort {
	letters, digits, hex, joints, humps, upper := 0, 0, 0, 0, 0, 0
	for i, c := range w {
		switch {
		case c >= '0' && c <= '9':
			digits++
			hex++
		case letter(c):
			letters++
			if c|0x20 <= 'f' {
				hex++
			}
			if c < 'a' {
				upper++
				if i > 0 && w[i-1] >= 'a' && w[i-1] <= 'z' {
					humps++
				}
			}
		case c == '_', c == '.', c == '-':
			joints++
		default:
			letters++
		}
	}
	joint := joints > 0 && letters >= 2*joints
	switch {
	case letters < 3 || w[0] == '0' || digits > letters || digits > 0 && hex+joints == len(w):
		return noise // a number, a time, a hash
	case digits > 3 && joints == 0:
		return noise // an identity
	}
	lower := strings.ToLower(string(w))
	if common[lower] {
		return noise
	}
	for _, s := range troubles {
		if strings.Contains(lower, s) {
			return trouble
		}
	}
	if joint || humps > 0 || digits > 0 && upper < letters {
		return name
	}
	return word
}

// Best returns at most n terms, the most telling first, always the same for the same stream.
func (t *Terms) Best(n int) []string {
	t.endWord(t.word)
	t.word = t.word[:0]
	type scored struct {
		word  string
		score float64
	}
	units := float64(t.n/termUnit + 1)
	var all []scored
	for _, tally := range [...]*tally{&t.names, &t.troubles} {
		for w, count := range tally.counts {
			c := float64(count)
			all = append(all, scored{w, weights[sortOf([]byte(w))] * math.Log1p(c) * math.Log1p(units/c)})
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
		f := family(s.word)
		if families[f]++; families[f] <= perFamily && !slices.ContainsFunc(best, same) {
			best = append(best, s.word)
		}
	}
	return best
}

// family is a word without its digits.
func family(w string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, w)
}
