package admit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// TestInvalidEntriesSkipped: an entry that cannot be served is skipped, logged with the reason, and clients for whom
// it is receive the reason. The others are served, and the supervisor starts even if every entry is invalid.
func TestInvalidEntriesSkipped(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	for _, name := range []string{"good", "link-to", "outer", "outer/inner", "other", "again"} {
		mkdir(t, at(name), owner)
	}
	mkdir(t, at("again-here"), owner)
	put(t, at("file"), "", 0o644, owner)
	if err := errors.Join(os.Symlink("link-to", at("link")), os.Mkdir(at("open"), 0o755), os.Chmod(at("open"), 0o777)); err != nil {
		t.Fatal(err)
	}
	mkdir(t, at("open/roots"), 0)
	if err := unix.Mount(at("again"), at("again-here"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at("again-here"), unix.MNT_DETACH) //nolint:errcheck // private to this test's mount namespace
	id := func(uid uint32) *uint32 { return &uid }
	for _, tt := range []struct {
		name    string
		entries []Entry
		bad     map[string]string // path and expected error; all others are served
	}{
		{"a link", []Entry{{Path: at("link")}, {Path: at("good")}}, map[string]string{at("link"): `link" is a symbolic link`}},
		{"through a link", []Entry{{Path: at("link/x")}}, map[string]string{at("link/x"): `leads through the symbolic link`}},
		{"the right owner", []Entry{{Path: at("good"), Owner: id(owner)}}, nil},
		{"another owner", []Entry{{Path: at("good"), Owner: id(1002)}, {Path: at("other")}}, map[string]string{at("good"): "belongs to user 1001, and its entry"}},
		{"overlapping", []Entry{{Path: at("outer")}, {Path: at("outer/inner")}, {Path: at("good")}}, map[string]string{
			at("outer"): "overlaps", at("outer/inner"): "overlaps",
		}},
		{"one directory by two names", []Entry{{Path: at("again")}, {Path: at("again-here")}}, map[string]string{
			at("again"): "overlaps", at("again-here"): "overlaps",
		}},
		{"twice, with two bounds", []Entry{{Path: at("good")}, {Path: at("good"), ReadOnly: true}}, nil},
		{"not there", []Entry{{Path: at("none")}}, map[string]string{at("none"): "no directory"}},
		{"a file", []Entry{{Path: at("file")}}, map[string]string{at("file"): "is not a directory"}},
		{"the system's", []Entry{{Path: "/etc"}, {Path: at("good")}}, map[string]string{"/etc": "configuration"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			s := serveDirs(t, Config{Entries: tt.entries, Log: slog.New(slog.NewTextHandler(&log, nil))})
			s.LogRejected()
			for _, entry := range tt.entries {
				r, err := s.Serves(host.Peer{UID: 1002}, entry.Path, nil)
				want, bad := tt.bad[entry.Path]
				switch {
				case !bad && err == nil:
					r.Close()
				case !bad:
					t.Errorf("%s: %v", entry.Path, err)
				case err == nil:
					r.Close()
					t.Errorf("%s is served", entry.Path)
				case !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "does not serve a configured repository"):
					t.Errorf("%s: %v, want %q", entry.Path, err, want)
				}
				if logged := strings.Contains(log.String(), `msg="repository not served" repo=`+entry.Path+" "); logged != bad {
					t.Errorf("%s: log: %s", entry.Path, log.String())
				}
			}
		})
	}
}

// TestEntryErrorHidden: a client for whom an entry is not does not learn why it is invalid.
func TestEntryErrorHidden(t *testing.T) {
	top := t.TempDir()
	if err := os.Symlink("none", top+"/link"); err != nil {
		t.Fatal(err)
	}
	s := serveDirs(t, Config{Own: true, Entries: []Entry{{Path: top + "/link", UIDs: []uint32{1002}}}})
	if _, err := s.Serves(host.Peer{UID: owner}, top+"/link", nil); err == nil || strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v", err)
	}
}

// TestRootRepoPath: jobs run as root in a directory only if root alone controls where its path leads.
func TestRootRepoPath(t *testing.T) {
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	mkdir(t, at("hers"), owner)
	mkdir(t, at("hers/roots"), 0)
	mkdir(t, at("open"), 0)
	mkdir(t, at("open/roots"), 0)
	mkdir(t, at("sticky"), 0)
	mkdir(t, at("sticky/roots"), 0)
	mkdir(t, at("writable"), 0)
	mkdir(t, at("group"), 0)
	for name, mode := range map[string]uint32{"open": 0o777, "sticky": 0o1777, "writable": 0o1777, "group": 0o775} {
		if err := unix.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"hers/roots": `hers" belongs to user 1001`, "open/roots": `open" has mode 0777`, "writable": `writable" has mode 1777`,
		"group": `group" has mode 0775`, "sticky/roots": "",
	} {
		s := serveDirs(t, Config{Own: true, Entries: []Entry{{Path: at(name)}}})
		for way, err := range map[string]error{
			"served": servesErr(s, host.Peer{UID: 1002}, at(name), nil), "root's own": servesErr(s, host.Peer{UID: 0}, at(name), opened(t, at(name))),
		} {
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", name, way, err, want)
			}
		}
	}
}

func servesErr(s *Served, peer host.Peer, path string, dir *os.File) error {
	r, err := s.Serves(peer, path, dir)
	if err == nil {
		r.Close()
	}
	return err
}

// TestOwnerChanges: a directory whose owner has changed since the supervisor started is not served.
func TestOwnerChanges(t *testing.T) {
	dir := newRepo(t)
	uid := uint32(owner)
	s := serveDirs(t, Config{Own: true, Entries: []Entry{{Path: dir, Owner: &uid}}})
	if err := servesErr(s, host.Peer{UID: 1002}, dir, nil); err != nil {
		t.Fatal(err)
	}
	give(t, dir, 1003, 1003)
	for _, passed := range []*os.File{nil, opened(t, dir)} {
		if err := servesErr(s, host.Peer{UID: 1002}, dir, passed); err == nil || !strings.Contains(err.Error(), "belongs to user 1003") {
			t.Errorf("%v", err)
		}
	}
}

// TestOpensWithAccountRights: an embedded supervisor opens the directories named on its command line with its
// account's rights.
func TestOpensWithAccountRights(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(filepath.Dir(top), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]int{"closed": 0, "group": 0, "hers": owner} {
		mkdir(t, filepath.Join(top, name), uid)
		mkdir(t, filepath.Join(top, name, "repo"), owner)
	}
	give(t, top+"/group", 0, 1500)
	if err := errors.Join(os.Chmod(top, 0o755), os.Chmod(top+"/closed", 0o700), os.Chmod(top+"/group", 0o750)); err != nil {
		t.Fatal(err)
	}
	paths := []Entry{{Path: top + "/closed/repo"}, {Path: top + "/group/repo"}, {Path: top + "/hers/repo"}}
	for name, tt := range map[string]struct {
		account directory.Account
		want    []bool
	}{
		"root":               {directory.Account{}, []bool{true, true, true}},
		"a user":             {directory.Account{UID: owner, GID: owner}, []bool{false, false, true}},
		"a user with groups": {directory.Account{UID: owner, GID: owner, Groups: []uint32{7, 1500}}, []bool{false, true, true}},
		"by the group alone": {directory.Account{UID: 1002, GID: 1500}, []bool{false, true, true}},
	} {
		s := serveDirs(t, Config{Own: true, Entries: paths, Account: &tt.account})
		for i, r := range paths {
			err := servesErr(s, host.Peer{Embedded: true, Account: &tt.account}, r.Path, nil)
			if (err == nil) != tt.want[i] || err != nil && !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("%s: %s: %v", name, r.Path, err)
			}
		}
	}
}

// TestReadOnlyMountEnforced: jobs and sessions in a repository that was passed read-only can only read it, and
// changes are not applied to it, even by a supervisor that resumes the layer later.
func TestReadOnlyMountEnforced(t *testing.T) {
	c := &Served{}
	r := &Repo{Path: "/x", ReadOnly: true}
	for name, tt := range map[string]struct {
		run  wire.Run
		step string
		flag uint32
	}{
		"writes":          {wire.Run{}, "", wire.FlagReadOnly},
		"protects":        {wire.Run{Flags: wire.FlagProtectAll}, "", wire.FlagReadOnly},
		"reads":           {wire.Run{Flags: wire.FlagReadOnly}, "", wire.FlagReadOnly},
		"writes a layer":  {wire.Run{Flags: wire.FlagOverlay}, "", wire.FlagOverlay},
		"applies a layer": {wire.Run{Tool: string(job.ToolChanges)}, "workspace", 0},
	} {
		q := &Request{Run: tt.run}
		_, _, err := c.Clamp(r, q, job.Limits{})
		if tt.step != "" {
			refusedAt(t, name, err, tt.step, 0)
		} else if err != nil || q.Flags != tt.flag {
			t.Errorf("%s: flags %#x, %v", name, q.Flags, err)
		}
	}
	if r.Identity() == (&Repo{Path: "/x"}).Identity() {
		t.Error("a jail is shared with clients that may write")
	}
}

// TestHomesNotServed: home directories of the host's users, and hidden directories in them, are not served.
func TestHomesNotServed(t *testing.T) {
	s := serveDirs(t, Config{})
	for path, want := range map[string]string{
		"/root/.ssh": "hidden directories", "/root/.config/corral": "hidden directories", "/home/ada/.aws": "hidden directories",
		"/root": "home directory", "/home/ada": "home directory", "/root/src/.x": "", "/home/ada/src": "",
	} {
		err := s.checkPath(path)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
