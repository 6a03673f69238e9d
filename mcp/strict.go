package mcp

import (
	"strings"

	"corral/internal/strictjson"
)

// checkJSON returns what is wrong with data, nil for one JSON text in UTF-8, within the bounds, in which no object has a
// key twice, in whatever case: mcp-go decodes it after us. What is wrong within params.arguments is told apart, with its
// path from there, as long as all else is right.
func checkJSON(data []byte) (envelope, arguments *strictjson.Fault) {
	return strictjson.Checker{Fold: strictjson.Fold, Aside: []string{"params", "arguments"}}.Check(data)
}

// misspelled returns the word of known that key is but for its case, "" when it is the very word or none.
// encoding/json, which mcp-go decodes with, would take the one for the other.
func misspelled(key string, known []string) string {
	found := ""
	for _, k := range known {
		if k == key {
			return ""
		}
		if strings.EqualFold(k, key) {
			found = k
		}
	}
	return found
}
