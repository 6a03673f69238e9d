package layers

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestRegexps proves which expressions are refused.
func TestRegexps(t *testing.T) {
	const imports = "import \"regexp\"\nimport \"corral/internal/lazyregexp\"\n"
	tests := []struct {
		name, dir, source, want string // want is part of the one line, "" for none
	}{
		{"in a variable", "job", "var x = regexp.MustCompile(`a`)", "job/a.go:4:9: the expression is compiled whenever a program starts"},
		{"in a list", "job", "var (\n\tx = []*regexp.Regexp{regexp.MustCompile(`a`)}\n)", "job/a.go:5:"},
		{"in a function", "job", "func x() { regexp.MustCompile(`a`) }", ""},
		{"in a function of a variable", "job", "var x = sync.OnceValue(func() any { return regexp.MustCompile(`a`) })", ""},
		{"in a tool", "scripts/x", "var x = regexp.MustCompile(`a`)", ""},
		{"lazy", "job", "var x, y = lazyregexp.New(`a`), lazyregexp.List(`a`, `b`)", ""},
		{"lazy and malformed", "job", "var x = lazyregexp.New(`a(`)", "job/a.go:4:24: error parsing regexp: missing closing )"},
		{"malformed in a list", "job", "var x = lazyregexp.List(`a`, `b`+y)\nconst y = `*+`", "job/a.go:4:30: error parsing regexp"},
		{"variable", "job", "var y = `a`\nvar x = lazyregexp.New(y)", "job/a.go:5:24: the expression of internal/lazyregexp must be a constant"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := graphOf(t, map[string]string{tt.dir + "/a.go": "package p\n" + imports + tt.source + "\n"}).checkRegexps()
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one line with %q", got, tt.want)
			}
		})
	}
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
