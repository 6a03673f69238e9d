package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"corral/index"
)

// learn indexes a text in a directory of state, as a server does.
func learn(t *testing.T, state string, b index.Base, label, text string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := index.Open(f, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Add(t.Context(), b, index.Source{Label: label, Fixed: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// reachable makes a directory of state below directories that every user may search: SQLite goes through them.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "corral-front-test-") //nolint:usetesting // t.TempDir() lies in a directory that only root enters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestIndexCommand: what is indexed is told, removed, and brought back as far as the output is kept.
func TestIndexCommand(t *testing.T) {
	state := reachable(t)
	keep(t, state, "the zebra is loose\n", "") // of user:ada in app
	ada, ci := index.Base{Repo: "app", Principal: "user:ada"}, index.Base{Repo: "app", Principal: "token:ci"}
	learn(t, state, ada, "notes", "a quagga\n")
	learn(t, state, ci, "notes", "an okapi\n")
	give(t, state)
	run := func(args ...string) (int, string, string) {
		return front(t, append(append([]string{"index"}, args...), "--state", state)...)
	}
	code, out, errs := run("stats")
	if code != 0 || !strings.Contains(out, "REPOSITORY  CLIENT    SOURCES  SECTIONS  TEXT") || !strings.Contains(out, "\napp         user:ada  1        1         8 ") ||
		strings.Contains(out, "token:ci") || errs != "" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	code, out, _ = run("stats", "--principal", "token:ci", "--repo", "app", "--json")
	var list []struct {
		RepoID, Principal string
		Sources           int
		Bytes             int64
		Oldest            string
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 1 || list[0].Principal != "token:ci" || list[0].Sources != 1 ||
		list[0].Bytes != 8 || !strings.HasSuffix(list[0].Oldest, "Z") {
		t.Errorf("%d, %s, %v", code, out, err)
	}
	if code, _, errs = run("purge"); code != failure || !strings.Contains(errs, "purge removes what is indexed: it needs --yes\nhint: corral index --help") {
		t.Errorf("%d, %q", code, errs)
	}
	if code, out, errs = run("rebuild", "--yes"); code != 0 || !strings.Contains(out, "app         user:ada  1        1         18 ") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	has := func(principal string, bytes int64) {
		t.Helper()
		_, out, errs := run("stats", "--principal", principal, "--repo", "app", "--json")
		var got []struct{ Bytes int64 }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%s%s: %v", out, errs, err)
		}
		if bytes > 0 && (len(got) != 1 || got[0].Bytes != bytes) || bytes == 0 && len(got) > 0 && got[0].Bytes > 0 {
			t.Errorf("%s has %s", principal, out)
		}
	}
	has("user:ada", 18) // what was of the job, and not what was not
	has("token:ci", 8)
	if code, out, errs = run("purge", "--yes", "--repo", "other"); code != 0 || out != "nothing is indexed\n" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if code, out, errs = run("purge", "--yes"); code != 0 || !strings.Contains(out, "REMOVED OF") || !strings.Contains(out, "user:ada") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	has("user:ada", 0)
	has("token:ci", 8)
	for _, tt := range []struct{ args, want string }{
		{"", "stats, purge or rebuild is wanted, not \"\""},
		{"burn", "stats, purge or rebuild is wanted, not \"burn\""},
		{"stats app", "unexpected argument \"app\""},
		{"stats --loud", "hint: corral index --help"},
	} {
		if code, _, errs := front(t, append([]string{"index"}, strings.Fields(tt.args)...)...); code != failure || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %d, %q", tt.args, code, errs)
		}
	}
	if code, out, _ = front(t, "index", "--help"); code != 0 || out != indexHelp {
		t.Errorf("%d, %q", code, out)
	}
}
