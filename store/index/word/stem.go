package word

// Stem appends the stem of a folded word to dst, by Porter's algorithm (M. F. Porter, An algorithm for suffix stripping,
// Program 14, 1980) with the two changes in its author's later code. Words of less than three letters, and words with
// characters other than a to z, are returned unchanged.
//
// Knowledge bases contain stems, so a change to any of them needs another version of the schema (package db), which has
// every base refilled from what is still in artifacts. That, and figures of 2026, speak against a library: of 164,744 words
// in Go's own tree, the package porter of github.com/blevesearch/snowballstem stems 73 differently, as it follows the paper
// rather than its author's code ("assembly", "incompatibly"), takes 14 % longer and allocates for each word. Porter's later
// algorithm, there or in github.com/kljensen/snowball, takes 2.1 to 2.8 times as long and stems 3,762 differently.
func Stem(dst, w []byte) []byte {
	at := len(dst)
	dst = append(dst, w...)
	if len(w) < 3 {
		return dst
	}
	for _, b := range w {
		if b < 'a' || b > 'z' {
			return dst
		}
	}
	p := porter{dst[at:]}
	p.plural()
	p.past()
	p.last()
	p.replace(longSuffixes)
	p.replace(middleSuffixes)
	p.drop()
	p.finish()
	return dst[:at+len(p.w)]
}

// A porter is the word being stemmed.
type porter struct{ w []byte }

// consonant reports whether letter i is a consonant; y after a consonant is a vowel.
func (p porter) consonant(i int) bool {
	switch p.w[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !p.consonant(i-1)
	}
	return true
}

// measure returns how often a consonant follows a vowel in the first n letters: m in the paper.
func (p porter) measure(n int) int {
	m, vowel := 0, false
	for i := range n {
		c := p.consonant(i)
		if c && vowel {
			m++
		}
		vowel = !c
	}
	return m
}

func (p porter) hasVowel(n int) bool {
	for i := range n {
		if !p.consonant(i) {
			return true
		}
	}
	return false
}

func (p porter) doubled() bool {
	n := len(p.w)
	return n > 1 && p.w[n-1] == p.w[n-2] && p.consonant(n-1)
}

// short reports whether the first n letters end in consonant, vowel, consonant, where the last is not w, x or y, as in
// hop.
func (p porter) short(n int) bool {
	if n < 3 || !p.consonant(n-1) || p.consonant(n-2) || !p.consonant(n-3) {
		return false
	}
	c := p.w[n-1]
	return c != 'w' && c != 'x' && c != 'y'
}

func (p porter) ends(suffix string) bool {
	n := len(p.w) - len(suffix)
	return n >= 0 && string(p.w[n:]) == suffix
}

// set replaces the last n letters with a suffix. It does not grow the word beyond its original length: a suffix is never
// longer than what it replaces, except for an e after letters were removed.
func (p *porter) set(n int, suffix string) {
	p.w = append(p.w[:len(p.w)-n], suffix...)
}

// plural is step 1a.
func (p *porter) plural() {
	switch {
	case p.ends("sses"), p.ends("ies"):
		p.set(2, "")
	case p.ends("ss"):
	case p.ends("s"):
		p.set(1, "")
	}
}

// past is step 1b.
func (p *porter) past() {
	n := len(p.w)
	switch {
	case p.ends("eed"):
		if p.measure(n-3) > 0 {
			p.set(1, "")
		}
		return
	case p.ends("ed") && p.hasVowel(n-2):
		p.set(2, "")
	case p.ends("ing") && p.hasVowel(n-3):
		p.set(3, "")
	default:
		return
	}
	switch {
	case p.ends("at"), p.ends("bl"), p.ends("iz"):
		p.set(0, "e")
	case p.doubled() && !p.ends("l") && !p.ends("s") && !p.ends("z"):
		p.set(1, "")
	case p.measure(len(p.w)) == 1 && p.short(len(p.w)):
		p.set(0, "e")
	}
}

// last is step 1c.
func (p *porter) last() {
	if p.ends("y") && p.hasVowel(len(p.w)-1) {
		p.w[len(p.w)-1] = 'i'
	}
}

type suffix struct{ old, new string }

// longSuffixes are the suffixes of step 2. A suffix precedes shorter ones that it ends with.
var longSuffixes = []suffix{
	{"ational", "ate"},
	{"ization", "ize"},
	{"iveness", "ive"},
	{"fulness", "ful"},
	{"ousness", "ous"},
	{"tional", "tion"},
	{"biliti", "ble"},
	{"entli", "ent"},
	{"ousli", "ous"},
	{"ation", "ate"},
	{"alism", "al"},
	{"aliti", "al"},
	{"iviti", "ive"},
	{"enci", "ence"},
	{"anci", "ance"},
	{"izer", "ize"},
	{"alli", "al"},
	{"ator", "ate"},
	{"logi", "log"},
	{"bli", "ble"},
	{"eli", "e"},
}

// middleSuffixes are the suffixes of step 3.
var middleSuffixes = []suffix{
	{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ness", ""}, {"ful", ""},
}

// replace replaces the first suffix that matches, if the measure of the rest is positive.
func (p *porter) replace(table []suffix) {
	for _, s := range table {
		if p.ends(s.old) {
			if p.measure(len(p.w)-len(s.old)) > 0 {
				p.set(len(s.old), s.new)
			}
			return
		}
	}
}

// shortSuffixes are the suffixes of step 4.
var shortSuffixes = []string{
	"ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion", "al", "er",
	"ic", "ou",
}

// drop is step 4.
func (p *porter) drop() {
	for _, s := range shortSuffixes {
		if !p.ends(s) {
			continue
		}
		n := len(p.w) - len(s)
		if p.measure(n) > 1 && (s != "ion" || n > 0 && (p.w[n-1] == 's' || p.w[n-1] == 't')) {
			p.set(len(s), "")
		}
		return
	}
}

// finish is step 5.
func (p *porter) finish() {
	if n := len(p.w) - 1; p.ends("e") {
		if m := p.measure(n); m > 1 || m == 1 && !p.short(n) {
			p.set(1, "")
		}
	}
	if p.ends("ll") && p.measure(len(p.w)) > 1 {
		p.set(1, "")
	}
}
