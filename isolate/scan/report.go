package scan

import (
	"cmp"
	"slices"
	"strings"
)

// maxFound is the maximum number of paths among which those to report are chosen.
const maxFound = 20_000

// A finding is a path to report.
type finding struct {
	path  string
	row   int16
	depth int
}

// report adds an entry of the current directory to the findings.
func (w *walk) report(name string, row int16) {
	if w.silent {
		return
	}
	w.take(string(w.path)+name, row)
}

// reportDir adds the current directory to the findings.
func (w *walk) reportDir(c *node) {
	if w.silent {
		return
	}
	w.take(string(w.path[:len(w.path)-1]), c.row)
}

func (w *walk) take(path string, row int16) {
	w.count++
	if w.names[path] {
		return
	}
	if len(w.found) >= maxFound {
		w.rep.More++
		return
	}
	if w.names == nil {
		w.names = map[string]bool{}
	}
	w.names[path] = true
	w.found = append(w.found, finding{path, row, strings.Count(path, "/")})
}

// choose fills the report with the findings, as many as it may hold: first the shallowest of each row of the table, then
// the next of each, so that many paths of one kind cannot hide another kind, nor deep ones those at the root. A caller
// without space for all of them keeps the first ones.
func (w *walk) choose() {
	found := w.found
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.depth, b.depth), cmp.Compare(a.path, b.path))
	})
	for i, turn := 0, 0; i < len(found); i++ {
		if i > 0 && found[i].row != found[i-1].row {
			turn = 0
		}
		found[i].depth = turn // from here on, its index in its row
		turn++
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.depth, b.depth) })
	if limit := w.s.bounds.MaxReport; len(found) > limit {
		w.rep.More += len(found) - limit
		found = found[:limit]
	}
	for _, f := range found {
		w.rep.Paths = append(w.rep.Paths, f.path)
	}
}

// InTurn merges two lists that are in order of importance, by taking elements from each in turn.
func InTurn(a, b []string) []string {
	all := make([]string, 0, len(a)+len(b))
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			all = append(all, a[i])
		}
		if i < len(b) {
			all = append(all, b[i])
		}
	}
	return all
}
