package redact

import "bytes"

// maxWord is the maximum length of a plain word; maxHard is the maximum number of consecutive consonants in it.
const (
	maxWord = 16
	maxHard = 5
)

var (
	letters = set("AZaz", "")
	// ends are characters that may follow a word in a sentence.
	ends = set("", ".,;:!?)]}")
)

// isPlainWord reports whether the unquoted text at i is one natural word: in lower case or in capitals,
// pronounceable, and not part of something else.
func (l *matchContext) isPlainWord(i int) bool {
	end := l.while(i, &letters, maxWord+1)
	if l.short || end == i || end > i+maxWord {
		return false
	}
	after := end
	for n := 0; n < 3 && ends[l.at(after)]; n++ {
		after++
	}
	if c := l.at(after); l.short || inValue[c] {
		return false
	}
	w := l.b[i:end]
	if lower := bytes.ToLower(w); !bytes.Equal(lower, w) && !bytes.Equal(bytes.ToUpper(w), w) {
		return false
	}
	hard, vowels := 0, 0
	for _, c := range w {
		if hard++; bytes.IndexByte([]byte("aeiouyAEIOUY"), c) >= 0 {
			hard = 0
			vowels++
		}
		if hard > maxHard {
			return false
		}
	}
	return vowels > 0
}

// isTestName reports whether the name that ends with the prefix is the name of a Go test, such as TestToken.
func (l *matchContext) isTestName() bool {
	n := 0
	for n < lookbehind && word[l.before(n+1)] {
		n++
	}
	var b [lookbehind]byte
	for k := range n {
		b[k] = l.before(n - k)
	}
	for _, kind := range [...]string{"Test", "Benchmark", "Fuzz", "Example"} {
		if rest, ok := bytes.CutPrefix(b[:n], []byte(kind)); ok {
			next := l.b[0]
			if len(rest) > 0 {
				next = rest[0]
			}
			return next < 'a' || next > 'z'
		}
	}
	return false
}

// prose are words that follow a flag in help texts and sentences about it.
var prose = map[string]bool{
	"instead": true, "option": true, "options": true, "argument": true, "arguments": true, "parameter": true,
	"switch": true, "requires": true, "cannot": true, "should": true, "password": true, "passphrase": true, "secret": true,
}

// flagValue matches the argument after a flag: --password VALUE.
func flagValue(l *matchContext) (int, valueMatcher, bool) {
	i := l.while(l.i, &blank, 16)
	if i == l.i || l.at(i) == '-' || l.at(i) == '=' || l.at(i) == ':' {
		return 0, valueMatcher{}, false
	}
	quote, escaped, i := l.quote(i)
	if quote == 0 {
		end := l.while(i, &word, 256)
		w := l.b[min(i, len(l.b)):min(end, len(l.b))]
		if !l.short && !inValue[l.at(end)] && (prose[string(w)] || bytes.Equal(bytes.ToUpper(w), w) && l.isPlainWord(i)) {
			return 0, valueMatcher{}, false
		}
	}
	return l.value(i, quote, escaped)
}

// login matches the password in -u USER:PASSWORD, as for curl. Pairs of numbers are user and group ids.
func login(l *matchContext) (int, valueMatcher, bool) {
	i := l.while(l.i, &blank, 16)
	if i == l.i && l.at(i) == '=' {
		i++
	}
	if i == l.i {
		return 0, valueMatcher{}, false
	}
	quote, escaped, i := l.quote(i)
	colon := l.while(i, &inUser, 256)
	if colon == i || l.at(colon) != ':' || l.at(colon+1) == '/' {
		return 0, valueMatcher{}, false
	}
	digits := set("09", "")
	if end := l.while(colon+1, &digits, 256); quote == 0 && !inValue[l.at(end)] {
		return 0, valueMatcher{}, false
	}
	return l.value(colon+1, quote, escaped)
}

// template reports whether the text at i, up to the quote or the value's end, contains a placeholder: ${NAME},
// $(command), {{ name }}, <name>. If it has minValue or more bytes besides, it is a value.
func (l *matchContext) template(i int, quote byte) bool {
	rest, found := 0, false
	for n := 0; n < 512; n++ {
		c := l.at(i)
		if end := l.placeholder(i); end > i {
			i, found = end, true
			continue
		}
		if c == 0 || c == '\n' || c == quote || c == '\\' && quote != 0 || quote == 0 && !inValue[c] {
			break
		}
		rest++
		i++
	}
	return found && rest < minValue
}

// placeholder returns the index after a placeholder at i, or i if there is none.
func (l *matchContext) placeholder(i int) int {
	c, next := l.at(i), l.at(i+1)
	switch {
	case c == '<':
		named := set("AZaz", " -_.")
		if end := l.while(i+1, &named, 64); end > i+1 && l.at(end) == '>' {
			return end + 1
		}
		return i
	case c != '$' && c != '{' || next != '{' && next != '(':
		return i
	}
	depth := 0
	for end := i + 1; end < i+512; end++ {
		switch c := l.at(end); c {
		case '{', '(':
			depth++
		case '}', ')':
			depth--
		case '\n', 0:
			return i
		}
		if depth == 0 {
			if c == '{' && l.at(end+1) == '}' { // closes {{ name }}
				end++
			}
			return end + 1
		}
	}
	return i
}
