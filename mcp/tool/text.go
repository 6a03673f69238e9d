package tool

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"corral/internal/nearest"
)

// loneSurrogate reports whether a string has an escape for half of a surrogate pair. encoding/json would replace it by
// U+FFFD, and the program that runs would differ from the one that was sent.
func loneSurrogate(raw json.RawMessage) bool {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 || n+2 > len(raw) {
			return false
		}
		raw = raw[n:]
		unit, ok := escaped(raw)
		if !ok {
			raw = raw[2:]
			continue
		}
		raw = raw[6:]
		if unit < 0xd800 || unit > 0xdfff {
			continue
		}
		low, ok := escaped(raw)
		if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
			return true
		}
		raw = raw[6:]
	}
}

// escaped decodes \uXXXX at the beginning of raw.
func escaped(raw []byte) (unit uint64, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// suggest returns the name of the argument that key probably stands for: one that contains key or is contained in it, ignoring
// case, or one within a small edit distance. It returns "" if there is none.
func suggest(key string, list []argument) string {
	lower := strings.ToLower(key)
	names := make([]string, len(list))
	for n, a := range list {
		names[n] = a.name
		name := strings.ToLower(a.name)
		if len(lower) > 2 && (strings.Contains(name, lower) || strings.Contains(lower, name)) {
			return a.name
		}
	}
	return nearest.Of(key, names)
}
