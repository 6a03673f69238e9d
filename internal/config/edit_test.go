package config

import (
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"

	"corral/job"
)

func TestEdit(t *testing.T) {
	readonly := job.ReadOnly
	add := Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}
	const file = "# mine\nversion: 1   # of the format\n\n# The directories.\nrepos:\n  # the first\n  - path: /srv/a   # at work\n" +
		"    users:\n      - 0\n\n  # the second\n  - path: /srv/b\n    id: 'other'\n  # - path: /srv/later\n\n# How long?\njail_idle:  5m\n"
	for _, tt := range []struct {
		name     string
		edit     Edit
		old, new string
	}{
		{"no file", add, "", "version: 1\nrepos:\n  - path: /srv/new\n"},
		{"no list", add, "version: 1\n# end\n", "version: 1\n# end\nrepos:\n  - path: /srv/new\n"},
		{"no newline at the end", add, "version: 1", "version: 1\nrepos:\n  - path: /srv/new\n"},
		{"every word", Edit{AddRepo: &Repo{ID: "N e w", Path: "/srv/new dir", Workspace: &readonly, Profile: "strict"}}, "", "version: 1\n" +
			"repos:\n  - path: \"/srv/new dir\"\n    id: \"N e w\"\n    profile: strict\n    workspace: readonly\n"},
		{"comments", add, file, strings.Replace(file, "'other'\n", "'other'\n  - path: /srv/new\n", 1)},
		{"at the left", add, "version: 1\nrepos:\n- path: /srv/a\nmax_jobs: 1\n", "version: 1\nrepos:\n- path: /srv/a\n- path: /srv/new\nmax_jobs: 1\n"},
		{"far to the right", add, "repos:\n      -   path: /srv/a\nversion: 1\n", "repos:\n      -   path: /srv/a\n      - path: /srv/new\nversion: 1\n"},
		{"a dash alone", add, "version: 1\nrepos:\n  -\n    path: /srv/a\n", "version: 1\nrepos:\n  -\n    path: /srv/a\n  - path: /srv/new\n"},
		{"in brackets", add, "version: 1 # one\nrepos: [{path: /srv/a}] # a\n# end\n", "version: 1 # one\nrepos:\n  - {path: /srv/a}\n  - path: /srv/new\n# end\n"},
		{"empty brackets", add, "# top\nversion: 1\nrepos: []\nmax_jobs: 1 # one\n", "# top\nversion: 1\nrepos:\n  - path: /srv/new\nmax_jobs: 1 # one\n"},
		{"all in braces", add, "{version: 1, max_jobs: 3}\n", "{version: 1, max_jobs: 3, repos: [{path: /srv/new}]}\n"},
		{"carriage returns", add, "version: 1\r\nrepos:\r\n  - path: /srv/a\r\n", "version: 1\r\nrepos:\r\n  - path: /srv/a\r\n  - path: /srv/new\n"},
		{"end of the document", add, "---\nversion: 1\nrepos:\n  - path: /srv/a\n...\n", "---\nversion: 1\nrepos:\n  - path: /srv/a\n  - path: /srv/new\n...\n"},
		{"principal", Edit{AddPrincipal: &Principal{"ci", sha256.Sum256([]byte("1")), []string{"a", "b c"}, []string{"x"}}}, "version: 1\n", "version: 1\n" +
			"principals:\n  - name: ci\n    token_sha256: \"" + hash1 + "\"\n    repos: [a, \"b c\"]\n    tools: [x]\n"},

		{"remove, with its comment", Edit{RemoveRepo: "a"}, file, strings.Replace(file, "  # the first\n  - path: /srv/a   # at work\n    users:\n      - 0\n", "", 1)},
		{"remove the last", Edit{RemoveRepo: "other"}, file, strings.Replace(file, "  # the second\n  - path: /srv/b\n    id: 'other'\n", "", 1)},
		{"remove all", Edit{RemoveRepo: "a"}, "version: 1\n# dirs\nrepos:\n  # a\n  - path: /srv/a\n    users: [0]\n\n# next\nmax_jobs: 1\n", "version: 1\n# dirs\n\n# next\nmax_jobs: 1\n"},
		{"remove at the left", Edit{RemoveRepo: "b"}, "version: 1\nrepos:\n- path: /a\n- path: /b\n- path: /c\n", "version: 1\nrepos:\n- path: /a\n- path: /c\n"},
		{"remove in brackets", Edit{RemoveRepo: "a"}, "version: 1 # one\nrepos: [{path: /a}, {path: /b}]\n", "version: 1 # one\nrepos: [{path: /b}]\n"},
		{"remove all in brackets", Edit{RemoveRepo: "a"}, "version: 1 # one\nrepos: [{path: /a}]\n", "version: 1 # one\n"},
		{"remove one called like another's end", Edit{RemoveRepo: "c"}, "version: 1\nrepos:\n- {path: /x/c, id: d}\n- {path: /y, id: c}\n", "version: 1\nrepos:\n- {path: /x/c, id: d}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var old []byte
			if tt.old != "" {
				old = []byte(tt.old)
			}
			got, err := tt.edit.Apply("f", old, LoadOptions{LookupUser: lookup})
			if err != nil || string(got) != tt.new {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, tt.new)
			}
		})
	}
}

func TestEditErrors(t *testing.T) {
	const file = "version: 1\nrepos: [{path: /srv/app}]\nprincipals: [{name: ci, token_sha256: " + hash1 + "}]\n"
	for _, tt := range []struct {
		name string
		edit Edit
		old  string
		want string
	}{
		{"path", Edit{AddRepo: &Repo{ID: "x", Path: "/srv/app"}}, file, "f: repository /srv/app is there already, as \"app\""},
		{"id", Edit{AddRepo: &Repo{ID: "app", Path: "/x"}}, file, "f: there is a repository \"app\" already: /srv/app\nhint: --id gives it another"},
		{"bad id", Edit{AddRepo: &Repo{ID: strings.Repeat("x", 129), Path: "/x"}}, file, "f: `id`: a name of 1 to 128 characters is wanted, not \"" + strings.Repeat("x", 60) + "…\""},
		{"bad profile", Edit{AddRepo: &Repo{ID: "x", Path: "/x", Profile: "strikt"}}, file, "f: unknown profile `strikt`: did you mean `strict`?"},
		{"no such one", Edit{RemoveRepo: "nope"}, file, "f: there is no repository \"nope\""},
		{"nearly", Edit{RemoveRepo: "ap"}, file, "f: there is no repository \"ap\"\nhint: did you mean \"app\"?"},
		{"none at all", Edit{RemoveRepo: "app"}, "version: 1\n", "f: there is no repository \"app\""},
		{"wrong before", Edit{RemoveRepo: "app"}, "version: 1\nrepo: []\n", "f:2:1: unknown key `repo`: did you mean `repos`?"},
		{"principal", Edit{AddPrincipal: &Principal{Name: "ci"}}, file, "f: there is a principal \"ci\" already\nhint: remove its entry, or take another name"},
		{"principal's tool", Edit{AddPrincipal: &Principal{Name: "x", Tools: []string{"a.b"}}}, file, "f: `tools`: a tool's name such as runtime_execute, without dots, is wanted, not \"a.b\""},
		{"principal's name", Edit{AddPrincipal: &Principal{Name: "a b"}}, file, "f: `name`: a name of 1 to 64 letters, digits, dots, dashes and underscores is wanted, not \"a b\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.edit.Apply("f", []byte(tt.old), LoadOptions{LookupUser: lookup})
			if err == nil || err.Error() != tt.want || got != nil {
				t.Errorf("got  %v\nwant %s\n%s", err, tt.want, got)
			}
		})
	}
}

// TestEditExample: in the file that `corral config init` writes every line stays, and what is added can be taken out.
func TestEditExample(t *testing.T) {
	o := LoadOptions{LookupUser: lookup}
	live := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(Example, "$1")
	for name, content := range map[string]string{"as it is": Example, "all of it": live} {
		t.Run(name, func(t *testing.T) {
			added, err := Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}.Apply("f", []byte(content), o)
			if err != nil {
				t.Fatal(err)
			}
			lost := strings.Split(content, "\n")
			for line := range strings.SplitSeq(string(added), "\n") {
				if len(lost) > 0 && line == lost[0] {
					lost = lost[1:]
				}
			}
			if len(lost) > 0 {
				t.Errorf("lines that are gone or elsewhere: %q", lost)
			}
			back, err := Edit{RemoveRepo: "new"}.Apply("f", added, o)
			if err != nil || string(back) != content {
				t.Errorf("%v, taken out again\n%s", err, back)
			}
		})
	}
}

// FuzzEdit: whatever a file looks like, an edit either fails or has changed that one thing.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{"version: 1\nrepos: [{path: /a}]\n", "version: 1\nrepos:\n  # a\n  - path: /a\n# end\nmax_jobs: 5\n", "{version: 1}", "version: 1\nrepos:\n- path: >-\n   /a\n"} {
		f.Add([]byte(seed))
	}
	o := LoadOptions{LookupUser: lookup}
	f.Fuzz(func(t *testing.T, content []byte) {
		before, err := Parse("f", content, o)
		if err != nil {
			return
		}
		edited, err := Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}.Apply("f", content, o)
		if err != nil {
			return
		}
		after, err := Parse("f", edited, o)
		if err != nil || len(after.Repos) != len(before.Repos)+1 || after.MaxJobs != before.MaxJobs {
			t.Errorf("%v\n%s", err, edited)
		}
		if _, err := (Edit{RemoveRepo: "new"}).Apply("f", edited, o); err != nil {
			t.Errorf("%v\n%s", err, edited)
		}
	})
}
