package redact

// minValue is the minimum length of a value after a secret's name; shorter ones are not hidden.
const minValue = 6

var (
	blank      = set("", " \t")
	identifier = set("AZaz09", "_.")
	quotes     = set("", "\"'`")
)

// types are words that follow such a name in programs, schemas and data and are not secrets.
var types = map[string]bool{
	"string": true, "number": true, "boolean": true, "object": true, "unknown": true, "undefined": true,
	"optional": true, "required": true, "Optional": true, "String": true,
	"null": true, "none": true, "None": true, "nil": true, "true": true, "false": true, "True": true, "False": true,
}

// assignment matches the value after a name: NAME=value, "name": "value", name := 'value'. The name and the operator
// stay visible. After a colon and a blank, as in prose, a bare word is not a value, and the name of a test does not
// name a secret.
func assignment(l *matchContext) (int, valueMatcher, bool) {
	i, ok := l.joined(l.i)
	if !ok || l.at(l.i) == ':' && l.isTestName() {
		return 0, valueMatcher{}, false
	}
	prose := l.at(l.i) == ':' && blank[l.at(l.i+1)]
	quote, escaped, i := l.quote(i)
	if after, ok := l.scheme(i); ok {
		i = after
	} else if prose && quote == 0 && l.isPlainWord(i) {
		return 0, valueMatcher{}, false
	}
	return l.value(i, quote, escaped)
}

// value matches a secret at i, after a quote or without one.
func (l *matchContext) value(i int, quote byte, escaped bool) (int, valueMatcher, bool) {
	// A value that has a rule of its own is matched where it begins.
	if l.hasOwnRule(i) {
		return 0, valueMatcher{}, false
	}
	if quote == 0 {
		if l.while(i, &inValue, minValue) < i+minValue || l.code(i) {
			return 0, valueMatcher{}, false
		}
		return i, valueMatcher{class: &inValue, left: unbounded}, true
	}
	if !l.quoted(i, valueMatcher{quote: quote, escaped: escaped, left: minValue}) || l.template(i, quote) {
		return 0, valueMatcher{}, false
	}
	return i, valueMatcher{quote: quote, escaped: escaped, left: unbounded}, true
}

// quoted reports whether at least e.left bytes from i on belong to e.
func (l *matchContext) quoted(i int, e valueMatcher) bool {
	needed := e.left
	n, ended := e.run(l.b[min(i, len(l.b)):], l.last)
	if n < needed && !ended {
		l.short = true
	}
	return n >= needed
}

// authorization matches the credentials after the scheme in a header of that name.
func authorization(l *matchContext) (int, valueMatcher, bool) {
	i, ok := l.joined(l.i)
	if !ok {
		return 0, valueMatcher{}, false
	}
	_, _, i = l.quote(i)
	i, ok = l.scheme(i)
	if !ok || l.hasOwnRule(i) || l.while(i, &inValue, minLiteral) < i+minLiteral || l.template(i, 0) {
		return 0, valueMatcher{}, false
	}
	return i, valueMatcher{class: &inValue, left: unbounded}, true
}

// joined returns where the value of a name that ends at i begins: after the name's closing quote and one of = : := ==
// =>, with blanks around it.
func (l *matchContext) joined(i int) (int, bool) {
	if _, _, after := l.quote(i); after > i {
		i = after
	}
	if l.at(i) == ']' {
		i++
	}
	i = l.while(i, &blank, 16)
	switch c := l.at(i); {
	case c == ':' && l.at(i+1) == ':': // a path in Rust or C++
		return 0, false
	case c == ':' && l.at(i+1) == '=', c == '=' && (l.at(i+1) == '=' || l.at(i+1) == '>'):
		i += 2
	case c == ':', c == '=':
		i++
	default:
		return 0, false
	}
	return l.while(i, &blank, 16), true
}

// quote returns the quote at i and the index after it. escaped reports a backslash before it, as in JSON within a
// string.
func (l *matchContext) quote(i int) (quote byte, escaped bool, after int) {
	c := l.at(i)
	if c == '\\' {
		escaped, after, c = true, i+1, l.at(i+1)
	} else {
		after = i
	}
	if !quotes[c] {
		return 0, false, i
	}
	return c, escaped, after + 1
}

// scheme returns the index after the name of an authentication scheme at i.
func (l *matchContext) scheme(i int) (int, bool) {
	for _, s := range [...]string{"bearer", "basic", "token"} {
		k := 0
		for k < len(s) && lower(l.at(i+k)) == s[k] {
			k++
		}
		if after := l.while(i+k, &blank, 16); k == len(s) && after > i+k {
			return after, true
		}
	}
	return i, false
}

// hasOwnRule reports whether another rule matches the value at i, or it is already redacted.
func (l *matchContext) hasOwnRule(i int) bool {
	if l.has(i, "[REDACTED:") {
		return true
	}
	if l.short || i > len(l.b) {
		return false
	}
	var v verdict
	what := l.rules.at(position{src: l.b, at: i}, l.last, &v)
	if what == more {
		l.short = true
	}
	return what == hit
}

// code reports whether the unquoted text at i is an expression or a type, not a value.
func (l *matchContext) code(i int) bool {
	end := l.while(i, &identifier, 256)
	if end > i && end < i+256 {
		switch c := l.at(end); {
		case c == '(' || c == '[':
			return true
		case !l.short && types[string(l.b[i:end])] && !alnum[c] && c != '-':
			return true
		}
	}
	return l.template(i, 0)
}
