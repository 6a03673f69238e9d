package scan

import (
	"strings"
	"testing"
)

// TestRules: walking a tree with Rules finds the same sensitive paths as a Scanner.
func TestRules(t *testing.T) {
	for _, tt := range []struct {
		path string // a directory if it has a trailing slash
		bare bool   // each directory on the way is a bare repository
		want bool
	}{
		{".git/", false, true},
		{".git", false, true},
		{".git/config", false, true},
		{".git/hooks/pre-commit", false, true},
		{".git/hooks/pre-commit.sample", false, false},
		{".git/objects/00/11", false, false},
		{"a/b/.GIT/Config", false, true},
		{".vscode/", false, true},
		{".vscode/x/y", false, true},
		{"src/.vscode.d/x", false, false},
		{"hooks/x", false, false},
		{"hooks/x", true, true},
		{"HEAD", true, true},
		{"HEAD", false, false},
		{"main.go", true, false},
	} {
		rules, sensitive := RepositoryRules(), false
		parts := strings.Split(strings.TrimSuffix(tt.path, "/"), "/")
		for i, name := range parts {
			directory := i < len(parts)-1 || strings.HasSuffix(tt.path, "/")
			sensitive, rules = rules.Entry(name, directory, func() bool { return tt.bare })
		}
		if sensitive != tt.want {
			t.Errorf("%s: %v", tt.path, sensitive)
		}
	}
	if s, below := (Rules{}).Entry(".git", true, nil); s || len(below.zones) > 0 || (Rules{}).Bare([]string{"HEAD"}) {
		t.Error("the zero value has rules")
	}
	for names, want := range map[string]bool{"HEAD refs objects": true, "HEAD commondir": true, "head Refs OBJECTS x": true, "HEAD refs": false, "": false} {
		if got := RepositoryRules().Bare(strings.Fields(names)); got != want {
			t.Errorf("%s: %v", names, got)
		}
	}
	for name, want := range map[string]bool{".git": true, ".GIT": true, "git~1": true, ".git ": true, ".g\u200cit": true, ".gitx": false, "git": false} {
		if got := IsDotGit(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
