package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/policy/network"
)

// TestAddNetwork: entries are added where they belong, and everything else stays as it is written.
func TestAddNetwork(t *testing.T) {
	npm := NetworkEdit{Allow: []network.Rule{{Preset: "npm"}}}
	of := func(repo string, e NetworkEdit) NetworkEdit {
		e.Repo = repo
		return e
	}
	for _, tt := range []struct {
		name, file string
		edit       NetworkEdit
		want       string // the file; an error if it begins with "error: "
	}{
		{
			"to a file without rules", "version: 1\n# few\nmax_jobs: 3\n", npm,
			"version: 1\n# few\nmax_jobs: 3\nnetwork:\n  allow:\n    - preset: npm\n",
		},
		{
			"to a file that ends in its last line", "version: 1",
			NetworkEdit{Allow: []network.Rule{{Host: "a.b", Ports: []uint16{1}, Protocol: "tcp"}}, Deny: []string{"*.c.d"}},
			"version: 1\nnetwork:\n  allow:\n    - host: a.b\n      ports: [1]\n      protocol: tcp\n  deny: [\"*.c.d\"]\n",
		},
		{
			"to a list",
			"version: 1\nnetwork:\n    # ours\n    allow:\n      - host: a.b # mine\n      - host: c.d\n        ports:\n          - 443\n\n    # never\n    deny:\n    - e.f\nmax_jobs: 3\n",
			NetworkEdit{Allow: []network.Rule{{Preset: "npm"}, {Host: "*.x.y", Ports: []uint16{22}, Protocol: "tcp"}}, Deny: []string{"g.h"}},
			"version: 1\nnetwork:\n    # ours\n    allow:\n      - host: a.b # mine\n      - host: c.d\n        ports:\n          - 443\n      - preset: npm\n      - {host: \"*.x.y\", ports: [22], protocol: tcp}\n\n    # never\n    deny:\n    - e.f\n    - g.h\nmax_jobs: 3\n",
		},
		{
			"without a list", "version: 1\nnetwork:\n  bytes:\n    up: 1MiB\nmax_jobs: 3\n",
			NetworkEdit{Allow: []network.Rule{{Preset: "npm"}}, Deny: []string{"e.f"}},
			"version: 1\nnetwork:\n  bytes:\n    up: 1MiB\n  allow:\n    - preset: npm\n  deny:\n    - e.f\nmax_jobs: 3\n",
		},
		{
			"the missing ones", "version: 1\nnetwork:\n  allow:\n  - preset: npm\n",
			NetworkEdit{Allow: []network.Rule{{Preset: "npm"}, {Preset: "go"}}},
			"version: 1\nnetwork:\n  allow:\n  - preset: npm\n  - preset: go\n",
		},
		{
			"to a repository in a list", "version: 1\nrepos:\n  - path: /a\n    id: x\n  - path: /b\n", of("x", npm),
			"version: 1\nrepos:\n  - path: /a\n    id: x\n    network:\n      allow:\n        - preset: npm\n  - path: /b\n",
		},
		{
			"to a repository's own", "version: 1\nnetwork:\n  allow:\n    - preset: go\nrepos:\n  - path: /a\n    network:\n      allow:\n        - host: a.b\n", of("a", npm),
			"version: 1\nnetwork:\n  allow:\n    - preset: go\nrepos:\n  - path: /a\n    network:\n      allow:\n        - host: a.b\n        - preset: npm\n",
		},
		{
			"to a repository that has those of the file", "version: 1\nrepos:\n- path: /a\nnetwork:\n  allow:\n  - preset: go\n  deny:\n  - a.b\n", of("a", npm),
			"version: 1\nrepos:\n- path: /a\n  network:\n    allow:\n      - preset: go\n      - preset: npm\n    deny: [a.b]\nnetwork:\n  allow:\n  - preset: go\n  deny:\n  - a.b\n",
		},
		{
			"to an entry file", "version: 1\n", of("entry", npm),
			"# by hand\npath: /entry\nnetwork:\n  allow:\n    - preset: npm\n",
		},

		{"nothing new", "version: 1\nnetwork:\n  allow:\n  - preset: npm\n", npm, "error: `network` of the file has these entries already"},
		{"no such repository", "version: 1\nrepos: [{path: /a}]\n", of("entri", npm), "there is no repository \"entri\"\nhint: did you mean \"entry\"?"},
		{"in flow style", "version: 1\nnetwork: {allow: [{preset: go}]}\n", npm, "is written in a way that this program cannot change\nhint: in an editor, add to `network` of the file: to `allow` - preset: npm"},
		{"no keys", "version: 1\nrepos:\n- path: /a\n  network: {}\n", of("a", npm), "add to `network` of repository \"a\": to `allow` - preset: npm"},
		{"an empty list", "version: 1\nnetwork:\n  allow: []\n", npm, "error: is written in a way"},
		{"a repository in flow style", "version: 1\nrepos: [{path: /a}]\n", of("a", npm), "error: is written in a way"},
		{"a text of several lines", "version: 1\nnetwork:\n  allow:\n  - host: \"a.\\\n      b\"\n", npm, "error: is written in a way"},
		{"denied", "version: 1\nnetwork:\n  deny: [registry.npmjs.org]\n", npm, "error: npm is requested, but the operator denies registry.npmjs.org: remove that entry of `deny` in an editor"},
		{"denied by name", "version: 1\nnetwork:\n  deny: [\"*.b.c\"]\n", NetworkEdit{Allow: []network.Rule{{Host: "a.b.c"}}}, "error: a.b.c is requested, but the operator denies *.b.c"},
		{"not a host", "version: 1\n", NetworkEdit{Deny: []string{"*"}}, "error: entry 1 of deny: \"*\" would be every host"},
		{"wrong before", "version: 2\n", npm, "error: must be 1, got 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := entries(t, tt.file, nil)
			entry := filepath.Join(filepath.Dir(path), reposDir, "entry.yaml")
			const byHand = "# by hand\npath: /entry\n"
			if err := os.Mkdir(filepath.Dir(entry), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(entry, []byte(byHand), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Update(path, LoadOptions{}, func(files Files) (Change, error) {
				change, _, _, err := Edit{AddNetwork: &tt.edit}.Apply(path, files)
				return change, err
			})
			file, entryNow := contentOf(t, path), contentOf(t, entry)
			switch {
			case !strings.HasPrefix(tt.want, "version: 1\n") && !strings.HasPrefix(tt.want, "#"):
				if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(tt.want, "error: ")) || file != tt.file || entryNow != byHand {
					t.Errorf("%v, want %q; the file is\n%s", err, tt.want, file)
				}
			case tt.edit.Repo == "entry":
				if err != nil || entryNow != tt.want || file != tt.file {
					t.Errorf("%v, got\n%s\nand\n%s\nwant\n%s", err, entryNow, file, tt.want)
				}
			case err != nil || file != tt.want || entryNow != byHand:
				t.Errorf("%v, got\n%s\nwant\n%s", err, file, tt.want)
			}
		})
	}
}

// TestAddNetworkNew: without a file, one is created; a user's file gets none.
func TestAddNetworkNew(t *testing.T) {
	e := Edit{AddNetwork: &NetworkEdit{Allow: []network.Rule{{Preset: "npm"}}}}
	change, _, after, err := e.Apply("/c.yaml", Files{})
	if err != nil || change.Name != "/c.yaml" || string(change.Content) != "version: 1\nnetwork:\n  allow:\n    - preset: npm\n" || after.Rules(Repo{}) == nil {
		t.Errorf("%q, %+v, %v", change.Content, after.Network, err)
	}
	if _, _, _, err := e.Apply("/c.yaml", Files{User: true}); err == nil || !strings.Contains(err.Error(), "run with sudo") {
		t.Errorf("a user's: %v", err)
	}
}
