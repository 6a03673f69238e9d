package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// TestReplacedAbove: the same with a link above the directory, where every entry of the configuration is wrong.
func TestReplacedAbove(t *testing.T) {
	sandboxtest.RequireJails(t)
	top := sandboxtest.OpenDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	closed := closedTo(t, at("closed"))
	closedTo(t, at("closed/repo"))
	makeDirectory(t, at("home"), alice, 0o755)
	makeDirectory(t, at("home/dir"), alice, 0o755)
	hers := makeDirectory(t, at("home/dir/repo"), alice, 0o755)
	d := serve(t, "--repo", hers)
	if err := errors.Join(os.Rename(at("home/dir"), at("home/away")), os.Symlink(closed, at("home/dir"))); err != nil {
		t.Fatal(err)
	}
	d.Everyone = true
	d.Stop(t)
	d.Start(t)
	d.refuses(t, hers, at("closed/repo"))
	if out := d.byPath(t, hers); !strings.Contains(out, "leads through the symbolic link "+`"`+at("home/dir")+`"`) {
		t.Errorf("%q", out)
	}
}

// TestOverlap: if one served directory is inside another, a job in the outer one can replace the inner one. The next
// supervisor, which opens it as root, must not follow the link.
func TestOverlap(t *testing.T) {
	sandboxtest.RequireJails(t)
	top := sandboxtest.OpenDir(t)
	at := func(name string) string { return filepath.Join(top, name) }
	closed := closedTo(t, at("closed"))
	outer := makeDirectory(t, at("outer"), alice, 0o755)
	inner := makeDirectory(t, at("outer/inner"), alice, 0o755)
	beside := makeDirectory(t, at("outer-beside"), alice, 0o755)
	d := serve(t, "--repo", outer, "--repo", inner, "--repo", beside)
	d.runs(alice, "run", "--repo", outer, "--", "sh", "-c", "mv inner away && ln -s ../closed inner")
	d.Everyone = true
	d.Stop(t)
	d.Start(t)
	d.refuses(t, inner, closed)
	d.works(t, alice, beside)
}

// TestGroupsOfClient: a job has the directory's group only if its client is a member according to the kernel, however many
// groups the client has.
func TestGroupsOfClient(t *testing.T) {
	sandboxtest.RequireJails(t)
	const group = 1500
	top := sandboxtest.OpenDir(t)
	repo := makeDirectory(t, filepath.Join(top, "repo"), alice, 0o755)
	d := serve(t)
	many := []uint32{group}
	for g := uint32(2000); len(many) < 300; g++ {
		many = append(many, g)
	}
	for name, tt := range map[string]struct {
		groups []uint32
		want   uint32 // group of a file that the job creates
	}{"none": {nil, alice}, "others": {[]uint32{4, 1501}, alice}, "that one": {[]uint32{4, group}, group}, "many": {many, group}} {
		if err := os.Chown(repo, alice, group); err != nil {
			t.Fatal(err)
		}
		cmd := d.as(alice, "run", "--repo", repo, "--", "touch", name)
		cmd.SysProcAttr.Credential.Groups = tt.groups
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", name, err, out)
			continue
		}
		info, err := os.Stat(filepath.Join(repo, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Gid != tt.want {
			t.Errorf("%s: %v, %+v, want group %d", name, err, info.Sys(), tt.want)
		}
	}
}
