package config

import (
	"crypto/sha256"
	"strings"
	"testing"

	"corral/job"
)

// files returns a configuration file "/c/f" with content, none if it is "", and entry files by their names in repos.d.
func files(content string, repos ...File) Files {
	f := Files{Repos: repos}
	if content != "" {
		f.Main = &File{"/c/f", []byte(content)}
	}
	return f
}

func inRepos(name, content string) File { return File{"/c/repos.d/" + name, []byte(content)} }

func TestEdit(t *testing.T) {
	readonly := job.ReadOnly
	const listed = "# mine\nversion: 1   # of the format\n\n# The directories.\nrepos:\n  # the first\n  - path: /srv/a   # at work\n" +
		"    users:\n      - 0\n\n  # the second\n  - path: /srv/b\n    id: 'other'\n  # - path: /srv/later\n\n# How long?\njail_idle:  5m\n"
	principal := Principal{Name: "ci", Hash: sha256.Sum256([]byte("1")), Repos: []string{"a", "b c"}, Tools: []string{"x"}}
	for _, tt := range []struct {
		name    string
		edit    Edit
		files   Files
		change  string // path
		content string
	}{
		{"no file", Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}, files(""), "/c/repos.d/new.yaml", "path: /srv/new\n"},
		{"beside a list", Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}, files(listed), "/c/repos.d/new.yaml", "path: /srv/new\n"},
		{"before another file", Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}, files("", inRepos("old.yaml", "path: /srv/old\n")), "/c/repos.d/new.yaml", "path: /srv/new\n"},
		{
			"every key",
			Edit{AddRepo: &Repo{ID: "n-e_w", Path: "/srv/new dir", Workspace: &readonly, Profile: "strict", Owner: new(uint32(7))}},
			files("version: 1\n"),
			"/c/repos.d/n-e_w.yaml", "path: \"/srv/new dir\"\nid: n-e_w\nowner: 7\nprofile: strict\nworkspace: readonly\n",
		},
		{
			"an id that is not a file name",
			Edit{AddRepo: &Repo{ID: "../x", Path: "/srv/new"}},
			files(""),
			"/c/repos.d/entry-d6b96a97d147daaae49eb87a5ca7bfbc280e79551016df8aa5edc5920d21c274.yaml", "path: /srv/new\nid: \"../x\"\n",
		},
		{
			"a hidden id",
			Edit{AddRepo: &Repo{ID: ".x", Path: "/srv/.x"}},
			files(""),
			"/c/repos.d/entry-", "path: /srv/.x\n",
		},
		{"a name that is taken", Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}, files("", inRepos("new.yaml", "path: /srv/old\n")), "/c/repos.d/entry-", "path: /srv/new\n"},
		{
			"principal",
			Edit{AddPrincipal: &principal},
			files("version: 1\n"),
			"/c/principals.d/ci.yaml", "name: ci\ntoken_sha256: \"" + hash1 + "\"\nrepos: [a, \"b c\"]\ntools: [x]\n",
		},

		{"remove a file", Edit{RemoveRepo: "z"}, files("version: 1\n", inRepos("x.yaml", "path: /srv/z\n"), inRepos("z.yaml", "path: /srv/x\n")), "/c/repos.d/x.yaml", ""},
		{"remove, with its comment", Edit{RemoveRepo: "a"}, files(listed), "/c/f", strings.Replace(listed, "  # the first\n  - path: /srv/a   # at work\n    users:\n      - 0\n", "", 1)},
		{"remove the last", Edit{RemoveRepo: "other"}, files(listed), "/c/f", strings.Replace(listed, "  # the second\n  - path: /srv/b\n    id: 'other'\n", "", 1)},
		{
			"remove all",
			Edit{RemoveRepo: "a"},
			files("version: 1\n# dirs\nrepos:\n  # a\n  - path: /srv/a\n    users: [0]\n\n# next\nmax_jobs: 1\n"),
			"/c/f", "version: 1\n# dirs\n\n# next\nmax_jobs: 1\n",
		},
		{"remove at the left", Edit{RemoveRepo: "b"}, files("version: 1\nrepos:\n- path: /a\n- path: /b\n- path: /c\n"), "/c/f", "version: 1\nrepos:\n- path: /a\n- path: /c\n"},
		{"remove all at the end", Edit{RemoveRepo: "b"}, files("version: 1\nrepos:\n- path: /b"), "/c/f", "version: 1\n"},
		{
			"remove one called like another's end",
			Edit{RemoveRepo: "c"},
			files("version: 1\nrepos:\n- {path: /x/c, id: d}\n- {path: /y, id: c}\n"),
			"/c/f", "version: 1\nrepos:\n- {path: /x/c, id: d}\n",
		},
		{"remove beside a file", Edit{RemoveRepo: "a"}, files("version: 1\nrepos:\n- path: /a\n", inRepos("b.yaml", "path: /b\n")), "/c/f", "version: 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change, _, _, err := tt.edit.Apply("/c/f", tt.files)
			if err != nil || !strings.HasPrefix(change.Name, tt.change) || string(change.Content) != tt.content || (change.Content == nil) != (tt.content == "") {
				t.Errorf("%v, got %s\n%s\nwant %s\n%s", err, change.Name, change.Content, tt.change, tt.content)
			}
		})
	}
}

func TestEditErrors(t *testing.T) {
	const file = "version: 1\nrepos: [{path: /srv/app}]\nprincipals: [{name: ci, token_sha256: " + hash1 + "}]\n"
	beside := files("", inRepos("a.yaml", "path: /srv/app\n"))
	for _, tt := range []struct {
		name  string
		edit  Edit
		files Files
		want  string
	}{
		{"path", Edit{AddRepo: &Repo{ID: "x", Path: "/srv/app"}}, files(file), "repository /srv/app exists already, as \"app\" at /c/f:2:9"},
		{"path of a file", Edit{AddRepo: &Repo{ID: "x", Path: "/srv/app"}}, beside, "repository /srv/app exists already, as \"app\" at /c/repos.d/a.yaml:1:1"},
		{
			"overlap", Edit{AddRepo: &Repo{ID: "x", Path: "/srv"}}, beside, "/srv overlaps the repository \"app\", /srv/app, at /c/repos.d/a.yaml:1:1: " +
				"jobs in one could replace the other, so neither would be served\nhint: remove that one with corral repo remove",
		},
		{"id", Edit{AddRepo: &Repo{ID: "app", Path: "/x"}}, files(file), "a repository \"app\" exists already at /c/f:2:9: /srv/app\nhint: choose another id with --id"},
		{"bad id", Edit{AddRepo: &Repo{ID: strings.Repeat("x", 129), Path: "/x"}}, files(file), "/c/f: `id`: must be a repository's id: a name of 1 to 128 characters, got \"" + strings.Repeat("x", 60) + "…\""},
		{"bad profile", Edit{AddRepo: &Repo{ID: "x", Path: "/x", Profile: "strikt"}}, files(file), "/c/f: unknown profile `strikt`: did you mean `strict`?"},
		{"unknown", Edit{RemoveRepo: "nope"}, files(file), "/c/f: there is no repository \"nope\"\nhint: corral repo list has the ids; corral repo add DIR adds one"},
		{"nearly", Edit{RemoveRepo: "ap"}, files(file), "/c/f: there is no repository \"ap\"\nhint: did you mean \"app\"?"},
		{"none at all", Edit{RemoveRepo: "app"}, files("version: 1\n"), "/c/f: there is no repository \"app\"\nhint: corral repo list has the ids; corral repo add DIR adds one"},
		{"wrong before", Edit{RemoveRepo: "app"}, files("version: 1\nrepo: []\n"), "/c/f:2:1: unknown key `repo`: did you mean `repos`?"},
		{"in brackets", Edit{RemoveRepo: "app"}, files("version: 1\nrepos: [{path: /b},\n  {path: /srv/app}, {path: /c}]\n"), "/c/f is written in a way that this program cannot change\nhint: remove the entry in an editor: it is on lines 3 to 3"},
		{"all in braces", Edit{RemoveRepo: "a"}, files("{version: 1, repos: [{path: /a}]}\n"), "/c/f is written in a way that this program cannot change\nhint: remove the entry in an editor: it is on lines 1 to 1"},
		{"principal", Edit{AddPrincipal: &Principal{Name: "ci"}}, files(file), "a principal \"ci\" exists already at /c/f:3:14\nhint: remove its entry, or choose another name"},
		{"principal's tool", Edit{AddPrincipal: &Principal{Name: "x", Hash: [32]byte{1}, Tools: []string{"a.b"}}}, files(file), "/c/f: `tools`: must be a tool's name such as runtime_execute, without dots, got \"a.b\""},
		{"principal's name", Edit{AddPrincipal: &Principal{Name: "a b", Hash: [32]byte{1}}}, files(file), "/c/f: `name`: must be a name of 1 to 64 letters, digits, dots, dashes and underscores, got \"a b\""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change, _, _, err := tt.edit.Apply("/c/f", tt.files)
			if err == nil || err.Error() != tt.want || change.Name != "" {
				t.Errorf("got  %v\nwant %s\n%+v", err, tt.want, change)
			}
		})
	}
}

// FuzzEdit: whatever a file looks like, an edit either fails or changes nothing but the one entry.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{"version: 1\nrepos: [{path: /a}]\n", "version: 1\nrepos:\n  # a\n  - path: /a\n# end\nmax_jobs: 5\n", "{version: 1}", "version: 1\nrepos:\n- path: >-\n   /a\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		before, err := parseOne("/c/f", content, lookupUser)
		if err != nil {
			return
		}
		now := files(string(content))
		change, _, after, err := Edit{AddRepo: &Repo{ID: "new", Path: "/srv/new"}}.Apply("/c/f", now)
		if err == nil {
			now.Repos = []File{{change.Name, change.Content}}
			if len(after.Repos) != len(before.Repos)+1 || after.MaxJobs != before.MaxJobs {
				t.Errorf("%+v\n%s", after, content)
			}
			if _, _, _, err := (Edit{RemoveRepo: "new"}).Apply("/c/f", now); err != nil {
				t.Errorf("%v\n%s", err, content)
			}
		}
		for i, r := range before.Repos {
			change, _, _, err := Edit{RemoveRepo: r.ID}.Apply("/c/f", files(string(content)))
			if err != nil {
				continue
			}
			after, err := parseOne("/c/f", change.Content, lookupUser)
			if err != nil || len(after.Repos) != len(before.Repos)-1 || after.MaxJobs != before.MaxJobs {
				t.Errorf("%d: %v\n%s", i, err, change.Content)
			}
		}
	})
}
