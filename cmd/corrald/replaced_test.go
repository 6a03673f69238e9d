package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// closedTo creates a directory that only root may enter, with a file that only root may read.
func closedTo(t *testing.T, dir string) string {
	t.Helper()
	makeDirectory(t, dir, 0, 0o700)
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// attack is a job that reads the closed directory's file and creates another one in it.
var attack = []string{"--", "sh", "-c", "cat key; echo x >made"}

// refuses fails the test unless a job of alice in repo is refused with an error that contains the given words, and root's
// directory is unchanged.
func (d *server) refuses(t *testing.T, repo, closed string, words ...string) {
	t.Helper()
	code, out, errs := d.runs(alice, append([]string{"run", "--repo", repo}, attack...)...)
	if code != 125 || out != "" {
		t.Errorf("a job in %s: exit code %d, %q, %q", repo, code, out, errs)
	}
	for _, w := range append(words, "\nhint: ") {
		if !strings.Contains(errs, w) {
			t.Errorf("a job in %s: %q lacks %q", repo, errs, w)
		}
	}
	if _, err := os.Lstat(filepath.Join(closed, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job has written to %s", closed)
	}
}

// works fails the test unless a job in repo runs.
func (d *server) works(t *testing.T, uid uint32, repo string) {
	t.Helper()
	if code, out, errs := d.runs(uid, "run", "--repo", repo, "--", "pwd"); code != 0 || out != repo+"\n" {
		t.Errorf("a job in %s: exit code %d, %q, %q", repo, code, out, errs)
	}
}

// TestReplacedByLink: a user replaces a served directory by a link to a directory of root's. The next supervisor starts,
// serves the other directories, and names the entry and the link in its log.
func TestReplacedByLink(t *testing.T) {
	sandboxtest.RequireJails(t)
	top := sandboxtest.OpenDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	closed := closedTo(t, at("closed"))
	makeDirectory(t, at("home"), alice, 0o755)
	hers := makeDirectory(t, at("home/hers"), alice, 0o755)
	bobs := makeDirectory(t, at("bobs"), bob, 0o755)
	d := serve(t, "--repo", hers, "--repo", bobs)
	d.works(t, alice, hers)
	if err := errors.Join(os.Rename(hers, hers+"-away"), os.Symlink(closed, hers)); err != nil {
		t.Fatal(err)
	}
	d.Everyone = true
	d.Stop(t)
	d.Start(t)
	d.works(t, bob, bobs)
	for name, repo := range map[string]string{"as it is configured": hers, "by the directory's own name": closed} {
		t.Run(name, func(t *testing.T) { d.refuses(t, repo, closed) })
	}
	if want := `"reason":"\"` + hers + `\" is a symbolic link`; !strings.Contains(d.Log(), want) {
		t.Errorf("the log lacks %s:\n%s", want, d.Log())
	}
	// A client that names the entry without passing a descriptor gets the same reason.
	if out := d.byPath(t, hers); !strings.Contains(out, "is a symbolic link") {
		t.Errorf("%q", out)
	}
}
