package tool

import (
	"strings"

	"corral/internal/nearest"
)

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
