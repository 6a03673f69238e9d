// Package strictjson checks JSON texts of clients once, as a whole, so that everyone who reads them reads the same.
//
// encoding/json accepts duplicate keys, ignores the case of keys and replaces invalid UTF-8 by U+FFFD: the code that checks a
// message and the code that acts on it could then see different values. Here a text is checked first, and taken apart
// afterwards. Values stay as they were written, so that nothing large is decoded unless somebody uses it.
//
// The tokens are those of package jsontext of go-json-experiment, which is several times as fast as encoding/json. Its own
// check of duplicate keys is not used: it has neither a bound on the number of keys nor folding.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"corral/internal/text"
)

// Bounds of one text, besides its length. No protocol needs more, and each decoded value costs memory.
const (
	MaxDepth   = 64     // objects and arrays within each other
	MaxEntries = 10_000 // of one object or array
)

// maxShown is the maximum number of bytes of a key in a Fault.
const maxShown = 100

// A Fault describes what is wrong with a text.
type Fault struct {
	Path   []string // keys from the outermost object inwards, "[]" for an array
	What   string
	Syntax bool // the text is not JSON
}

// Error returns the path and the problem.
func (f *Fault) Error() string {
	if len(f.Path) == 0 {
		return f.What
	}
	return strings.Join(f.Path, ".") + ": " + f.What
}

// A Checker checks texts. The zero Checker is ready to use.
type Checker struct {
	// Fold makes keys duplicates of each other if strings.EqualFold holds them equal. It is for texts that are decoded with
	// encoding/json afterwards.
	Fold bool
	// Aside is the path of a value whose faults are returned separately; nil is none.
	Aside []string
}

// Check returns what is wrong with data, nil if it is one JSON text in UTF-8, within the bounds, in which no object has a
// duplicate key. A fault within the value at Aside is returned as aside, with its path from there, provided that the rest is
// valid.
func (c Checker) Check(data []byte) (fault, aside *Fault) {
	if f := Syntax(data); f != nil {
		return f, nil
	}
	w := &walker{Checker: c, data: data, tokens: newTokens(data)}
	defer release(w.tokens)
	if f := w.value(); f != nil {
		return f, nil
	}
	return nil, w.aside
}

// Syntax returns why data is not one JSON text in UTF-8, nil if it is.
func Syntax(data []byte) *Fault {
	if !utf8.Valid(data) {
		return &Fault{What: "not UTF-8", Syntax: true}
	}
	if jsontext.Value(data).IsValid(options...) {
		return nil
	}
	d := newTokens(data)
	defer release(d)
	_, err := d.ReadValue()
	if err == nil {
		_, err = d.ReadToken() // there must be nothing more
	}
	what := "unexpected end"
	if at := (*jsontext.SyntacticError)(nil); errors.As(err, &at) {
		what = fmt.Sprintf("%v at byte %d", at.Err, at.ByteOffset)
	} else if err == nil {
		what = fmt.Sprintf("more than one value at byte %d", d.InputOffset())
	}
	return &Fault{What: "not JSON: " + what, Syntax: true}
}

// options leave to this package what it checks itself. An escape for half of a surrogate pair is valid JSON.
var options = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// decoders holds decoders for reuse: making one costs as much as a small message.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// newTokens returns a decoder of data. The caller must pass it to release.
func newTokens(data []byte) *jsontext.Decoder {
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(data), options...)
	return d
}

// release takes a decoder back, without its reference to the text.
func release(d *jsontext.Decoder) {
	d.Reset(noText{})
	decoders.Put(d)
}

// noText is an empty reader.
type noText struct{}

// Read implements io.Reader.
func (noText) Read([]byte) (int, error) { return 0, io.EOF }

// A walker goes through a text that is known to be valid JSON.
type walker struct {
	Checker
	data   []byte
	tokens *jsontext.Decoder
	path   [][]byte // keys as they are written, nil for an array
	aside  *Fault   // within the value at Aside, which the walker has passed
}

// value goes through the next value.
func (w *walker) value() *Fault {
	if len(w.path) > MaxDepth {
		return w.fault("nested deeper than %d levels", MaxDepth)
	}
	switch w.tokens.PeekKind() {
	case '{':
		return w.object()
	case '[':
		return w.array()
	}
	_ = w.tokens.SkipValue() // the text is valid
	return nil
}

func (w *walker) object() *Fault {
	keys := keySet{fold: w.Fold}
	_, _ = w.tokens.ReadToken()
	for w.tokens.PeekKind() == '"' {
		key, _ := valueOf(w.tokens, w.data)
		if !keys.add(key) {
			return w.fault("duplicate key %q", text.Cut(Unquote(key), maxShown))
		}
		if keys.n > MaxEntries {
			return w.fault("more than %d keys", MaxEntries)
		}
		if f := w.inside(key); f != nil {
			return f
		}
	}
	_, _ = w.tokens.ReadToken()
	return nil
}

func (w *walker) array() *Fault {
	_, _ = w.tokens.ReadToken()
	for n := 1; w.tokens.PeekKind() != ']'; n++ {
		if n > MaxEntries {
			return w.fault("more than %d entries", MaxEntries)
		}
		if f := w.inside(nil); f != nil {
			return f
		}
	}
	_, _ = w.tokens.ReadToken()
	return nil
}

// inside goes through a value within another one.
func (w *walker) inside(key []byte) *Fault {
	w.path = append(w.path, key)
	depth := len(w.path)
	if w.isAside() {
		return w.setAside()
	}
	f := w.value()
	w.path = w.path[:depth-1]
	return f
}

// setAside checks the value at Aside on its own.
func (w *walker) setAside() *Fault {
	value, _ := valueOf(w.tokens, w.data)
	in := &walker{Checker: Checker{Fold: w.Fold}, data: value, tokens: newTokens(value), path: w.path}
	defer release(in.tokens)
	if f := in.value(); f != nil {
		w.aside = &Fault{Path: f.Path[len(w.path):], What: f.What}
	}
	w.path = w.path[:len(w.path)-1]
	return nil
}

func (w *walker) isAside() bool {
	if w.Aside == nil || len(w.path) != len(w.Aside) {
		return false
	}
	for n, step := range w.Aside {
		if w.path[n] == nil || Unquote(w.path[n]) != step {
			return false
		}
	}
	return true
}

func (w *walker) fault(format string, values ...any) *Fault {
	f := &Fault{What: fmt.Sprintf(format, values...)}
	for _, step := range w.path {
		name := "[]"
		if step != nil {
			name = text.Cut(Unquote(step), maxShown)
		}
		f.Path = append(f.Path, name)
	}
	return f
}

// valueOf reads the next value and returns the part of data that has it, or an error if that is invalid. The bytes that
// ReadValue returns are the decoder's.
func valueOf(d *jsontext.Decoder, data []byte) (json.RawMessage, error) {
	value, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	return data[end-len(value) : end : end], nil
}

// A keySet holds the keys of one object; most have few.
type keySet struct {
	fold bool
	few  [8][]byte // in quotes
	many map[string]bool
	n    int
}

// add reports whether a key is new.
func (s *keySet) add(key []byte) bool {
	if bytes.IndexByte(key, '\\') >= 0 {
		key = json.RawMessage(`"` + Unquote(key) + `"`)
	}
	for _, k := range s.few[:min(s.n, len(s.few))] {
		if bytes.Equal(k, key) || s.fold && bytes.EqualFold(k, key) {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = key
		s.n++
		return true
	}
	word := string(key)
	if s.fold {
		word = foldOf(word)
	}
	if s.many[word] {
		return false
	}
	if s.many == nil {
		s.many = map[string]bool{}
	}
	s.many[word] = true
	s.n++
	return true
}

// foldOf maps strings that strings.EqualFold holds equal to the same string: to upper case first, because ſ is a lower case of
// S, then to lower case, because the Kelvin sign is an upper case of k.
func foldOf(s string) string { return strings.ToLower(strings.ToUpper(s)) }
