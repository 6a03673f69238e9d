package tool

import (
	"strings"
	"testing"
)

// TestDefaults: a session keeps the repository that its calls without a name used first. If that is not served any more, a call
// fails instead of using another one, and a new session uses the new default.
func TestDefaults(t *testing.T) {
	c := Caller{Defaults: &Defaults{}}
	for _, repos := range [][]string{{"app", "lib"}, {"new", "app"}} {
		if got, err := c.Repo(repos, "", "x"); got != "app" || err != nil {
			t.Errorf("%q: %q, %v", repos, got, err)
		}
	}
	if got, err := c.Repo([]string{"new", "app"}, "", "another purpose"); got != "new" || err != nil {
		t.Errorf("another purpose: %q, %v", got, err)
	}
	if got, err := c.Repo([]string{"new"}, "", "x"); err == nil || !strings.Contains(err.Error(), "app, which this session has used, is not served any more") {
		t.Errorf("removed: %q, %v", got, err)
	}
	c.Repos = []string{"new"}
	if _, err := c.Repo([]string{"new", "app"}, "", "x"); err == nil {
		t.Error("the principal may not use it any more")
	}
	if got, err := (Caller{Defaults: &Defaults{}}).Repo([]string{"new"}, "", "x"); got != "new" || err != nil {
		t.Errorf("a new session: %q, %v", got, err)
	}
	if got, err := (Caller{}).Repo([]string{"new"}, "", "x"); got != "new" || err != nil {
		t.Errorf("no session: %q, %v", got, err)
	}
}

// TestRemoved: only a caller who could use a repository learns that it was removed.
func TestRemoved(t *testing.T) {
	for _, tt := range []struct {
		name  string
		may   []string
		named string
		want  bool
	}{
		{"all", nil, "app", true}, {"this one", []string{"app"}, "app", true}, {"another", []string{"lib"}, "app", false}, {"never served", nil, "x", false},
	} {
		err := Caller{Repos: tt.may, Removed: []string{"app"}}.MayUse([]string{"lib"}, tt.named)
		if err == nil || strings.Contains(err.Error(), "the operator has removed it") != tt.want || !strings.Contains(err.Error(), "Repository "+tt.named+" not found") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
