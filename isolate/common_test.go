package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"corral/isolate/admit"
	"corral/job"
)

// naming makes the front send common as its common directory unchecked, as a foreign client could.
func (f *front) naming(common string) *front {
	f.C.ByPath, f.C.Commons = true, map[string]string{f.Repo: common}
	return f
}

// everyday runs script as a writing job both without a session and in one.
func (f *front) everyday(script string) map[string]did {
	f.T.Helper()
	ss := f.Session(job.SessionSpec{})
	return map[string]did{"job": f.Run(f.Spec("sh", "-c", script)), "session": f.In(ss, script)}
}

// TestServedRepoNotCommon: a served directory is not accepted as a git directory just because a client names it so.
func TestServedRepoNotCommon(t *testing.T) {
	top := newRepo(t)
	for _, dir := range []string{"free", "layer"} {
		mkdir(t, filepath.Join(top, dir), owner)
	}
	f := newFront(t, func(c *Config) {
		c.Repos = []admit.Entry{{Path: top + "/free"}, {Path: top + "/layer", Overlay: true}}
	})
	f.Repo = top + "/free"
	for way, d := range f.naming(top + "/layer").everyday("ls -d " + top + "/layer && touch " + top + "/layer/made || true") {
		if d.Out != "" || exists(top+"/layer/made") {
			t.Errorf("%s: %q, %q", way, d.Out, d.Err)
		}
	}
}

// TestCommonEntryApplies: the operator's entry for a repository also applies to jobs that write to its git directory
// from a worktree.
func TestCommonEntryApplies(t *testing.T) {
	top := newRepo(t)
	for _, dir := range []string{"free", "main", "main/.git", "main/.git/hooks"} {
		mkdir(t, filepath.Join(top, dir), owner)
	}
	script := "cd " + top + "/main/.git && touch made && echo wrote; touch hooks/pre-commit && echo hook; ulimit -n"
	for name, tt := range map[string]struct {
		entry admit.Entry
		want  string // what the job writes
		as    string // profile, pids and protection in the audit log
	}{
		"nothing":  {admit.Entry{}, "wrote\nhook\n4096\n", "default 512 "},
		"readonly": {admit.Entry{ReadOnly: true}, "4096\n", "default 512 "},
		"overlay":  {admit.Entry{Overlay: true}, "4096\n", "default 512 "},
		"profile":  {admit.Entry{Profile: "strict"}, "wrote\nhook\n4096\n", "strict 512 "},
		"ceilings": {admit.Entry{Ceilings: job.Limits{PIDs: 9, OpenFiles: 99}}, "wrote\nhook\n99\n", "default 9 "},
		"protect":  {admit.Entry{Protect: job.ProtectHooks}, "wrote\n4096\n", "default 512 hooks"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.entry.Path = top + "/main"
			f := newFront(t, func(c *Config) { c.Repos = []admit.Entry{{Path: top + "/free"}, tt.entry} })
			f.Repo = top + "/free"
			for way, d := range f.naming(top + "/main/.git").everyday(script) {
				if d.Out != tt.want {
					t.Errorf("%s: %q, %q, want %q", way, d.Out, d.Err, tt.want)
				}
			}
			n := 0
			for _, r := range logged(t, f.s.config.StateDir) {
				if r.Event != "decided" {
					continue
				}
				n++
				if as := fmt.Sprintf("%s %d %s", r.Profile, r.Limits["pids"], r.Protect); as != tt.as || r.Common != top+"/main/.git" {
					t.Errorf("in the audit log: %q, %q", as, r.Common)
				}
			}
			if n != 2 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// TestCommonOwner: in a git directory a job acts only as its repository's owner, and never as root, unless the
// operator serves that very directory.
func TestCommonOwner(t *testing.T) {
	top := newRepo(t)
	dirs := map[string]int{"main": owner, "main/.git": 0, "theirs": owner, "theirs/.git": 1002, "wt": owner}
	for _, dir := range []string{"wt", "main", "main/.git", "theirs", "theirs/.git"} {
		mkdir(t, filepath.Join(top, dir), dirs[dir])
		put(t, filepath.Join(top, dir, "secret"), "secret", 0o600, dirs[dir])
	}
	for _, tt := range []struct {
		name, common string
		serve        bool // the git directory itself is served
		want         string
	}{
		{"root's", "main/.git", false, ""},
		{"root's, served", "main/.git", true, ""},
		{"another's", "theirs/.git", false, ""},
		{"another's, served", "theirs/.git", true, "secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			common := filepath.Join(top, tt.common)
			f := newFront(t, func(c *Config) {
				c.Repos = []admit.Entry{{Path: top + "/wt"}, {Path: filepath.Dir(common)}}
				if tt.serve { // the two entries would overlap
					c.Repos[1].Path = common
				}
			})
			if err := os.Chmod(common, 0o700); err != nil {
				t.Fatal(err)
			}
			f.Repo = top + "/wt"
			for way, d := range f.naming(common).everyday("cat " + common + "/secret") {
				if d.Out != tt.want {
					t.Errorf("%s: %q, %q", way, d.Out, d.Err)
				}
			}
		})
	}
}
