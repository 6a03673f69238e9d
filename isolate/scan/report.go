package scan

import (
	"cmp"
	"slices"
	"strings"
)

// maxFound bounds the paths of which those named are chosen.
const maxFound = 20_000

// A finding is a path to report.
type finding struct {
	path  string
	row   int16
	depth int
}

// report takes up a name in the directory at hand.
func (w *walk) report(name string, row int16) {
	if w.quiet {
		return
	}
	w.take(string(w.path)+name, row)
}

// reportDir takes up the directory at hand.
func (w *walk) reportDir(c *node) {
	if w.quiet {
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

// choose names the findings, or as many as a report may hold: of each row of the table in turn the shallowest, so that a
// flood of one kind cannot hide another, nor one deep down what is at the root. Whoever has no room for all takes the first.
func (w *walk) choose() {
	found := w.found
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.depth, b.depth), cmp.Compare(a.path, b.path))
	})
	for i, turn := 0, 0; i < len(found); i++ {
		if i > 0 && found[i].row != found[i-1].row {
			turn = 0
		}
		found[i].depth = turn // from here on, its place in its row
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

// InTurn returns the elements of two lists that are in order of importance in one.
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
