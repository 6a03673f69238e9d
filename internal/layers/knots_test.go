package layers

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestKnots fails when more than maxKnot files of a package all reach each other, and when the table of packages that are
// above it is out of date.
func TestKnots(t *testing.T) {
	g, err := load(sandboxtest.ModuleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range g.checkKnots(knots) {
		t.Error(line)
	}
	bench, err := load(filepath.Join(sandboxtest.ModuleRoot(t), "bench")) // a module of its own
	if err != nil {
		t.Fatal(err)
	}
	if len(bench.pkgs) == 0 {
		t.Error("no package of bench was read")
	}
	for _, line := range bench.checkKnots(nil) {
		t.Error("bench: " + line)
	}
}

// TestKnotsTable plants a knot and proves that each row that is missing, wrong or left over is found.
func TestKnotsTable(t *testing.T) {
	ring := graphOf(t, ringOf(maxKnot+1))
	small := graphOf(t, ringOf(maxKnot))
	tests := []struct {
		name  string
		g     *graph
		known map[string]int
		want  string // part of the one line, "" for none
	}{
		{"small enough", small, nil, ""},
		{"too large", ring, nil, "p: 9 files reach each other, at most 8 may"},
		{"names the uses", ring, nil, "f0.go → f1.go (f1)"},
		{"known", ring, map[string]int{"p": 9}, ""},
		{"grown", graphOf(t, ringOf(maxKnot+2)), map[string]int{"p": 9}, "p: 10 files reach each other, at most 9 may"},
		{"shrunk", ring, map[string]int{"p": 10}, "p: its largest knot has 9 files: lower its row"},
		{"untied", small, map[string]int{"p": 9}, "p: its largest knot has 8 files: delete its row"},
		{"no such package", small, map[string]int{"q": 9}, "q: a row of knots for a package that does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.g.checkKnots(tt.known)
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one line with %q", got, tt.want)
			}
		})
	}
}

// ringOf returns n files of a package p; each calls a function of the next, the last one of the first.
func ringOf(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		self, next := string(rune('0'+i)), string(rune('0'+(i+1)%n))
		files["p/f"+self+".go"] = "package p\nfunc f" + self + "() { f" + next + "() }\n"
	}
	return files
}

// graphOf returns the graph of files given by their sources.
func graphOf(t *testing.T, files map[string]string) *graph {
	t.Helper()
	g := newGraph("")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := g.add(name, []byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestLargestKnot proves what counts as a reference from one file to another.
func TestLargestKnot(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"one way", map[string]string{"p/a.go": "package p\nvar x = y", "p/b.go": "package p\nvar y = 1"}, "a.go"},
		{"functions", map[string]string{"p/a.go": "package p\nfunc a() { b() }", "p/b.go": "package p\nfunc b() { a() }"}, "a.go b.go"},
		{"a type and a method", map[string]string{
			"p/a.go": "package p\ntype t struct{}\nfunc a(x t) { x.m() }",
			"p/b.go": "package p\nfunc (t) m() {}",
		}, "a.go b.go"},
		{"a constant and a variable", map[string]string{
			"p/a.go": "package p\nconst a = 1\nvar x = b",
			"p/b.go": "package p\nvar b = a",
		}, "a.go b.go"},
		{"a field does not count", map[string]string{
			"p/a.go": "package p\ntype t struct{ f int }\nfunc a() { b(t{}) }",
			"p/b.go": "package p\nfunc b(x any) { _ = x.(interface{ m() }) }\nfunc c(x struct{ f int }) int { return x.f }",
		}, "a.go"},
		{"a local name does not count", map[string]string{
			"p/a.go": "package p\nfunc a() { b() }",
			"p/b.go": "package p\nfunc b() { a := 1; _ = a }",
		}, "a.go"},
		{"another package's names do not count", map[string]string{
			"p/a.go": "package p\nimport \"example.org/a/v3\"\nfunc b() { _ = a.Name; c() }",
			"p/c.go": "package p\nimport \"corral/job\"\nfunc c() { job.Run() }",
		}, "a.go"},
		{"through other packages", map[string]string{
			"p/a.go": "package p\nimport \"time\"\nfunc a() { time.AfterFunc(b) }",
			"p/b.go": "package p\nfunc b() { for range 3 { go c() } }",
			"p/c.go": "package p\nimport \"C\"\nfunc c() { C.f(a) }",
			"p/d.go": "package p\nfunc d() { a() }",
		}, "a.go b.go c.go"},
		{"of another platform", map[string]string{
			"p/a.go":       "package p\nfunc a() { b() }",
			"p/b_arm64.go": "package p\nfunc b() { a() }",
			"p/b.go":       "//go:build !amd64\n\npackage p\nfunc b() { a() }",
			"p/b_amd64.go": "package p\nfunc b() {}",
		}, "a.go"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := graphOf(t, tt.files)
			if got := strings.Join(largestKnot(references(g.fset, g.pkgs["p"].files)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
