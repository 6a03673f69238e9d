package commands

import (
	"strings"
	"testing"

	"corral/internal/config"
)

// TestRepoID: a directory's long name is cut between characters, because it becomes text of JSON.
func TestRepoID(t *testing.T) {
	c := config.Config{Repos: []config.Repo{{Path: "/srv/app", ID: "the-app"}}}
	for path, want := range map[string]string{
		"/srv/app":                               "the-app",
		"/srv/other":                             "other",
		"/srv/" + strings.Repeat("x", maxRepo+1): strings.Repeat("x", maxRepo),
		"/srv/x" + strings.Repeat("\u00e4", maxRepo/2): "x" + strings.Repeat("\u00e4", maxRepo/2-1),
	} {
		if got := repoID(c, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
