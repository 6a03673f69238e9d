// Package strictjson reads JSON texts that somebody else wrote, in a way that leaves nothing to guess.
//
// encoding/json takes the last of two equal keys, ignores their case and puts U+FFFD in the place of bytes that are no
// text: then the one who checked a message and the one who acts on it may have read different things. Here a text is
// checked once, as a whole, and taken apart afterwards by functions that rely on the check. Values stay as they were
// written, so that nothing large is decoded that nobody reads.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"corral/internal/text"
)

// Bounds of one text, beside its length. No protocol has use for more, and decoding costs memory by the value.
const (
	MaxDepth   = 64     // objects and arrays within each other
	MaxEntries = 10_000 // of one object or array
)

// maxShown is how many bytes of a key a Fault has.
const maxShown = 100

// A Fault is what is wrong with a text.
type Fault struct {
	Path   []string // keys from the outermost object inwards, "[]" for an array
	What   string
	Syntax bool // it is no JSON at all
}

// Error says where and what.
func (f *Fault) Error() string {
	if len(f.Path) == 0 {
		return f.What
	}
	return strings.Join(f.Path, ".") + ": " + f.What
}

// A Checker says what is wrong with texts.
type Checker struct {
	// Fold gives what is the same for two keys that count as the same; nil tells apart whatever is not the very same.
	Fold func(key string) string
	// Aside is the path of a value whose faults are told apart from those of all else; nil is none.
	Aside []string
}

// Check returns what is wrong with data: nil for one JSON text in UTF-8, within the bounds, in which no object has a key
// twice. What is wrong within the value at Aside is told apart, with its path from there, as long as all else is right.
func (c Checker) Check(data []byte) (fault, aside *Fault) {
	if f := Syntax(data); f != nil {
		return f, nil
	}
	w := &walker{Checker: c, data: data}
	if f := w.value(); f != nil {
		return f, nil
	}
	return nil, w.aside
}

// Syntax returns why data is no JSON text in UTF-8, nil if it is one.
func Syntax(data []byte) *Fault {
	if !utf8.Valid(data) {
		return &Fault{What: "not UTF-8", Syntax: true}
	}
	if !json.Valid(data) {
		var v json.RawMessage
		return &Fault{What: fmt.Sprintf("not JSON: %v", json.Unmarshal(data, &v)), Syntax: true}
	}
	return nil
}

// A walker goes over a JSON text that is known to be valid.
type walker struct {
	Checker
	data  []byte
	at    int
	path  []string
	aside *Fault // within the value at Aside, which it has gone past
}

func (w *walker) value() *Fault {
	if len(w.path) > MaxDepth {
		return w.fault("nested deeper than %d levels", MaxDepth)
	}
	switch w.next() {
	case '{':
		return w.object()
	case '[':
		return w.array()
	default:
		w.skip()
		return nil
	}
}

func (w *walker) object() *Fault {
	keys := keySet{fold: w.Fold}
	w.at++
	for w.next() != '}' {
		key := w.key()
		if !keys.add(key) {
			return w.fault("the key %q is there twice", text.Cut(key, maxShown))
		}
		if keys.n > MaxEntries {
			return w.fault("more than %d keys", MaxEntries)
		}
		if f := w.inside(key); f != nil {
			return f
		}
	}
	w.at++
	return nil
}

func (w *walker) array() *Fault {
	w.at++
	for n := 1; w.next() != ']'; n++ {
		if n > MaxEntries {
			return w.fault("more than %d entries", MaxEntries)
		}
		if f := w.inside("[]"); f != nil {
			return f
		}
	}
	w.at++
	return nil
}

// inside goes over a value within another, and the comma after it.
func (w *walker) inside(step string) *Fault {
	w.path = append(w.path, step)
	start, depth := w.at, len(w.path)
	if f := w.value(); f != nil {
		if !w.isAside(depth) {
			return f
		}
		w.aside = &Fault{Path: f.Path[depth:], What: f.What}
		w.path, w.at = w.path[:depth], start
		w.skip()
	}
	w.path = w.path[:depth-1]
	w.comma()
	return nil
}

func (w *walker) isAside(depth int) bool {
	if depth == 0 || depth != len(w.Aside) {
		return false
	}
	for n, step := range w.Aside {
		if w.path[n] != step {
			return false
		}
	}
	return true
}

func (w *walker) fault(format string, values ...any) *Fault {
	f := &Fault{What: fmt.Sprintf(format, values...)}
	for _, step := range w.path {
		f.Path = append(f.Path, text.Cut(step, maxShown))
	}
	return f
}

// next returns the first byte of the next token, and stays there.
func (w *walker) next() byte {
	for w.data[w.at] == ' ' || w.data[w.at] == '\t' || w.data[w.at] == '\n' || w.data[w.at] == '\r' {
		w.at++
	}
	return w.data[w.at]
}

func (w *walker) comma() {
	if w.next() == ',' {
		w.at++
	}
}

// key returns a key, and goes past its colon.
func (w *walker) key() string {
	w.next()
	start := w.at
	w.text()
	key := Unquote(w.data[start:w.at])
	w.next() // at the colon
	w.at++
	return key
}

// text goes past a string. Strings are the long part of most texts: no byte of one is looked at twice for a quote, nor
// twice for a backslash.
func (w *walker) text() {
	w.at++
	end := w.at + bytes.IndexByte(w.data[w.at:], '"')
	for {
		escape := bytes.IndexByte(w.data[w.at:end], '\\')
		if escape < 0 {
			w.at = end + 1
			return
		}
		w.at += escape + 2
		if w.at > end { // the quote is the one that is escaped
			end = w.at + bytes.IndexByte(w.data[w.at:], '"')
		}
	}
}

// skip goes past a value, whatever is in it.
func (w *walker) skip() {
	for depth := 0; w.at < len(w.data); {
		switch w.next() {
		case '"':
			w.text()
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case ',', ':':
			w.at++
		default:
			w.literal()
		}
		if depth == 0 {
			return
		}
	}
}

// literal goes past a number, true, false or null.
func (w *walker) literal() {
	n := bytes.IndexAny(w.data[w.at:], " \t\r\n,:]}")
	if n < 0 {
		n = len(w.data) - w.at
	}
	w.at += n
}
