package agent

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
)

// TestFold: what git writes in its directory is one line, and so is a new directory with many files. Sensitive paths keep theirs.
func TestFold(t *testing.T) {
	var all []job.Change
	add := func(kind job.ChangeKind, of job.FileType, path string) {
		all = append(all, job.Change{Path: path, Kind: kind, Type: of, Sensitive: strings.Contains(path, "hooks/")})
	}
	for n := range 38 {
		add(job.ChangeAdded, job.TypeFile, fmt.Sprintf(".git/objects/%02d", n))
	}
	add(job.ChangeAdded, job.TypeFile, ".git/hooks/post-commit")
	add(job.ChangeModified, job.TypeFile, "a.go")
	add(job.ChangeAdded, job.TypeDirectory, "few")
	add(job.ChangeAdded, job.TypeFile, "few/a")
	add(job.ChangeAdded, job.TypeDirectory, "many")
	for n := range 50 {
		add(job.ChangeAdded, job.TypeDirectory, fmt.Sprintf("many/%02d", n))
		for k := range 100 {
			add(job.ChangeAdded, job.TypeFile, fmt.Sprintf("many/%02d/%02d", n, k))
		}
	}
	want := "modified .git/  (38 changes)\nadded    .git/hooks/post-commit  (sensitive)\nmodified a.go\nadded    few/\nadded    few/a\n" +
		"added    many/  (5050 changes)\n[5093 changes, not applied]"
	if got := list(&Review{Changes: &job.Changes{Entries: all}}, ""); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
	if got := list(&Review{Changes: &job.Changes{Entries: all}}, "many"); !strings.Contains(got, "added    many/00/  (100 changes)\nadded    many/01/") {
		t.Errorf("of a directory: %.300s", got)
	}
	if got := list(&Review{Changes: &job.Changes{Entries: []job.Change{{Path: "sub/.git", Kind: job.ChangeModified, Type: job.TypeFile}}}}, ""); !strings.HasPrefix(got, "modified sub/.git\n") {
		t.Errorf("a file .git: %s", got)
	}
	if got := list(&Review{Changes: &job.Changes{Entries: all}}, ".git"); !strings.Contains(got, "added    .git/objects/00\n") {
		t.Errorf("of the git directory: %.300s", got)
	}
}

// TestRefresh: what people changed beside the session is in the reply to the next command, once, and is taken by a refresh.
func TestRefresh(t *testing.T) {
	x := newSuite(t, mcptest.NewFakeRunner())
	review := &Review{Changes: &job.Changes{}, Newer: []Newer{{"a.go", false}, {"b.go", true}, {"old/", false}}, NewerMore: 2}
	var reverted [][]string
	x = x.Renew(func(s *Settings) {
		s.Newer = func(context.Context, tool.Caller, string) *Review { return review }
		s.Review = func(context.Context, tool.Caller, string, []string, io.Writer) (*Review, error) { return review, nil }
		s.Refresh = func(_ context.Context, _ tool.Caller, _ string, paths []string) (*Review, error) {
			reverted = append(reverted, paths)
			var many []job.Change
			for i := range 3000 * len(paths) {
				many = append(many, job.Change{Path: fmt.Sprint("d/", strings.Repeat("\n", 2000), i), Kind: job.ChangeAdded})
			}
			return &Review{Changes: &job.Changes{Entries: many}, Newer: review.Newer, Conflicts: []string{"b.go"}}, nil
		}
	})
	const news = "changed in the repository since you began: a.go, old/; b.go (changed by you, too) and 2 more: changes {action: refresh} takes that"
	if r := call(t, &Run{x}, `{"code":"x"}`); !strings.Contains(r.Text, news) {
		t.Errorf("%q", r.Text)
	}
	if r := call(t, &Run{x}, `{"code":"x"}`); strings.Contains(r.Text, "changed in the repository") {
		t.Errorf("again: %q", r.Text)
	}
	if r := call(t, &Changes{x}, `{}`); r.Text != "[no changes, "+news+"]" {
		t.Errorf("%q", r.Text)
	}
	for _, tt := range []struct{ arguments, want string }{
		{`{"action":"diff"}`, news},
		{`{"action":"refresh"}`, "newer    a.go\nnewer    b.go\nnewer    old/\n[you now see the repository's files wherever you changed nothing, conflict, changed by you and in the repository: b.go; to settle"},
		{`{"action":"revert","path":"d/b.go"}`, "changed nothing, 2900 more reverted paths, conflict"},
		{`{"action":"revert"}`, "revert requires path"},
		{`{"action":"refresh","path":"a"}`, "it has no path"},
	} {
		if r := call(t, &Changes{x}, tt.arguments); !strings.Contains(r.Text, tt.want) || len(r.Text) > 64<<10 {
			t.Errorf("%s: %d bytes, %.1000q", tt.arguments, len(r.Text), r.Text)
		}
	}
	review = &Review{Kept: []string{"1d", "2d"}}
	for n, want := range []bool{true, false} { // once
		if r := call(t, &Run{x}, `{"code":"x"}`); strings.Contains(r.Text, "(corral changes apply 1d) before you go on") != want {
			t.Errorf("kept changes, call %d: %q", n+1, r.Text)
		}
	}
	if fmt.Sprint(reverted) != "[[] [d/b.go]]" {
		t.Errorf("%q", reverted)
	}
}
