package server

import (
	"strings"

	"corral/internal/strictjson"
)

// checkJSON checks that data is one JSON text in UTF-8, within the bounds of package strictjson, without keys that are equal
// when case is ignored: encoding/json, which decodes requests later, ignores case. A fault in params.arguments is returned
// separately, with a path relative to the arguments, provided that the rest is valid.
func checkJSON(data []byte) (envelope, arguments *strictjson.Fault) {
	return strictjson.Checker{Fold: true, Aside: []string{"params", "arguments"}}.Check(data)
}

// misspelled returns the element of known that key differs from in case only, else "". encoding/json would accept the
// key as that element.
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
