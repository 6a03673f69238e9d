package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
)

// An Entry is a key of an object and its value, as it was written.
type Entry struct {
	Key   string
	Value json.RawMessage
}

// Entries returns what is in an object, in its order; nil for what is no object.
//
// Preconditions: Check found nothing wrong with data, or with a text that it is a value of.
func Entries(data []byte) []Entry {
	w := &walker{data: data}
	if w.next() != '{' {
		return nil
	}
	found := []Entry{}
	w.at++
	for w.next() != '}' {
		key := w.key()
		found = append(found, Entry{key, w.raw()})
	}
	return found
}

// Elements returns what is in an array, at most limit of them and one; nil for what is no array.
//
// Preconditions: as for Entries.
func Elements(data []byte, limit int) []json.RawMessage {
	w := &walker{data: data}
	if w.next() != '[' {
		return nil
	}
	found := []json.RawMessage{}
	w.at++
	for w.next() != ']' && len(found) <= limit {
		found = append(found, w.raw())
	}
	return found
}

// raw returns the next value as it was written, and goes past it and its comma.
func (w *walker) raw() json.RawMessage {
	w.next()
	start := w.at
	w.skip()
	value := w.data[start:w.at]
	w.comma()
	return value
}

// Unquote returns the text of a JSON string.
//
// Preconditions: raw is one.
func Unquote(raw []byte) string {
	if !bytes.ContainsRune(raw, '\\') {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it is valid
	return s
}

// A keySet has the keys of one object; most have few.
type keySet struct {
	fold func(string) string
	few  [8]string
	many map[string]bool
	n    int
}

// add reports whether key is new.
func (s *keySet) add(key string) bool {
	if s.fold != nil {
		key = s.fold(key)
	}
	for _, k := range s.few[:min(s.n, len(s.few))] {
		if k == key {
			return false
		}
	}
	if s.many[key] {
		return false
	}
	if s.n < len(s.few) {
		s.few[s.n] = key
	} else {
		if s.many == nil {
			s.many = map[string]bool{}
		}
		s.many[key] = true
	}
	s.n++
	return true
}

// Fold maps strings that strings.EqualFold has equal to one: upper first, for ſ is a lower case of S, then lower, for the
// Kelvin sign is an upper case of k. It is for a Checker of texts that encoding/json reads afterwards.
func Fold(s string) string {
	return strings.ToLower(strings.ToUpper(s))
}
