package packages

import (
	"encoding/json"
	"maps"
	"slices"
)

// A raw value of JSON refers to the document that it is part of. json.RawMessage would copy it, once for each level that is decoded.
type raw []byte

// UnmarshalJSON implements json.Unmarshaler. json.Unmarshal passes a part of the text that it was given, which nobody changes here.
func (r *raw) UnmarshalJSON(b []byte) error {
	*r = b
	return nil
}

// An object is decoded as a map, whose keys have one spelling: names of fields of structs have several.
type object = map[string]raw

// objectOf decodes an object. One that is larger than what a version takes is none: decoded, it can take thirty times its size.
func objectOf(r raw) object {
	var o object
	if len(r) > maxVersion || json.Unmarshal(r, &o) != nil {
		return nil
	}
	return o
}

func stringOf(r raw) string {
	var s string
	_ = json.Unmarshal(r, &s)
	return s
}

// encode returns the JSON of values that were decoded from JSON.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

// appendObject appends an object with its keys in order. Functions in nested append the values of their keys.
func appendObject(b []byte, o object, nested map[string]func([]byte) []byte) []byte {
	b = append(b, '{')
	for n, key := range slices.Sorted(maps.Keys(o)) {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(append(b, encode(key)...), ':')
		if write := nested[key]; write != nil {
			b = write(b)
		} else {
			b = append(b, o[key]...)
		}
	}
	return append(b, '}')
}

// appendList appends a list.
func appendList(b []byte, list []raw) []byte {
	b = append(b, '[')
	for n, one := range list {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(b, one...)
	}
	return append(b, ']')
}

// Bounds of what is decoded at once of JSON: the values of the outer two levels. Each takes up to 150 bytes beside the document.
// Indexes of packages have one for each version and file, of hundreds of bytes, and some others.
const (
	minValue  = 64  // bytes
	freely    = 512 // values of a small index
	maxValues = 250_000
)

// crowded reports whether JSON would take far more memory than its size: a MiB of `"a":0,` takes twenty.
func crowded(body []byte) bool {
	n, depth, quoted := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth <= 2:
			n++
		}
	}
	return n > min(len(body)/minValue+freely, maxValues)
}

// maxFacts is how many facts are taken of a document at most. Each takes up to 250 bytes without its address.
const maxFacts = 100_000

// maxFactsOf is how many facts are taken of a document. Indexes have two at most for each file, of hundreds of bytes.
func (d Document) maxFactsOf() int { return min(len(d.Body)/128+freely, maxFacts) }

// learn adds facts that a document has.
func (r *Reading) learn(d Document, facts ...Fact) {
	for _, f := range facts {
		if f.Address != "" && len(r.Facts) < d.maxFactsOf() {
			r.Facts = append(r.Facts, f)
		}
	}
}
