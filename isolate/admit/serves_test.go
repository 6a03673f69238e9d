package admit

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/job"
)

// serving is what a supervisor serves: one repository for every user and one for user 1002, and a directory that is not
// configured.
type serving struct {
	s                             *Served
	top, everybody, listed, other string
}

func newServing(t *testing.T, own bool) *serving {
	t.Helper()
	top := t.TempDir()
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &serving{top: top, everybody: top + "/everybody", listed: top + "/listed", other: top + "/other"}
	mkdir(t, w.everybody, 0)
	mkdir(t, w.listed, 0)
	mkdir(t, w.other, 1002)
	w.s = serveDirs(t, Config{Own: own, Entries: []Entry{{Path: w.everybody}, {Path: w.listed, UIDs: []uint32{1002}}}})
	return w
}

// TestServes: in which directories a client may have jobs.
func TestServes(t *testing.T) {
	w := newServing(t, true)
	mine := w.top + "/mine"
	mkdir(t, mine, owner)
	if err := os.Symlink(mine, w.top+"/link"); err != nil {
		t.Fatal(err)
	}
	put(t, w.top+"/file", "", 0o644, owner)
	client, root, embedded := host.Peer{UID: owner}, host.Peer{UID: 0}, host.Peer{UID: 0, Embedded: true}
	for _, tt := range []struct {
		name string
		peer host.Peer
		path string
		fd   string // path of the passed descriptor; "" for none
		want string // in the refusal; "" for none
	}{
		{"own directory", client, mine, mine, ""},
		{"own directory by another name", client, "/anything", mine, ""},
		{"own directory through a link", client, w.top + "/link", w.top + "/link/.", ""},
		{"own directory by path", client, mine, "", "does not serve"},
		{"another's", client, w.other, w.other, "belongs to user 1002"},
		{"another's, as root", root, w.other, w.other, "belongs to user 1002"},
		{"root's", client, w.top, w.top, "belongs to user 0"},
		{"for everybody", client, w.everybody, w.everybody, ""},
		{"for everybody by path", client, w.everybody, "", ""},
		{"another's, named as one for everybody", client, w.everybody, w.other, "belongs to user 1002"},
		{"for somebody else", client, w.listed, w.listed, "belongs to user 0"},
		{"for somebody else, named as one for everybody", client, w.everybody, w.listed, "belongs to user 0"},
		{"for somebody else by path", client, w.listed, "", "does not serve"},
		{"listed", host.Peer{UID: 1002}, w.listed, "", ""},
		{"below one served", client, w.everybody + "/x", "", "does not serve"},
		{"not clean", client, w.everybody + "/", "", "does not serve"},
		{"dots", client, w.listed + "/../everybody", "", "does not serve"},
		{"embedded", embedded, w.listed, "", ""},
		{"embedded, not named", embedded, w.other, "", "does not serve"},
		{"embedded, own but not named", embedded, w.top, w.top, "does not serve"},
		{"a file", client, w.top + "/file", w.top + "/file", "not a directory"},
		{"the root", root, "/", "/", "whole host"},
		{"configuration", root, "/etc", "/etc", "configuration"},
		{"in the system", root, "/usr/bin", "/usr/bin", "programs"},
		{"a home", root, "/root", "/root", "home"},
		{"all homes", root, "/home", "/home", "homes"},
		{"temporary files of all", root, "/tmp", "/tmp", "shared"},
		{"processes", root, "/proc/self", "/proc/1", "processes"},
		{"state", root, host.RunDir, host.RunDir, "services"},
	} {
		var dir *os.File
		if tt.fd != "" {
			dir = opened(t, tt.fd)
		}
		r, err := w.s.Serves(tt.peer, tt.path, dir)
		var refusal *job.Refusal
		switch {
		case err == nil && tt.want == "":
			r.Close()
		case err == nil:
			r.Close()
			t.Errorf("%s: is served", tt.name)
		case tt.want == "" || !errors.As(err, &refusal) || refusal.Step != "repo" || !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestServesOnlyConfigured: without Config.Own, owning a directory is not enough.
func TestServesOnlyConfigured(t *testing.T) {
	w := newServing(t, false)
	if _, err := w.s.Serves(host.Peer{UID: 1002}, w.other, opened(t, w.other)); err == nil || !strings.Contains(err.Error(), "does not serve") {
		t.Errorf("own directory: %v", err)
	}
	r, err := w.s.Serves(host.Peer{UID: 1002}, w.listed, opened(t, w.listed))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// TestReplaced: a repository is the directory that was registered, not whichever has its name later.
func TestReplaced(t *testing.T) {
	for name, replace := range map[string]func(dir string) error{
		"by another directory": func(dir string) error { return os.Mkdir(dir, 0o755) },
		"by a link":            func(dir string) error { return os.Symlink(dir+".old", dir) },
		"by a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o644) },
		"by nothing":           func(string) error { return nil },
	} {
		w := newServing(t, true)
		mine := w.top + "/mine"
		mkdir(t, mine, owner)
		passed := opened(t, mine)
		for _, dir := range []string{w.everybody, mine} {
			if err := errors.Join(os.Rename(dir, dir+".old"), replace(dir)); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := w.s.Serves(host.Peer{UID: owner}, w.everybody, nil); err == nil {
			r.Close()
			t.Errorf("%s: is served by path", name)
		}
		// The descriptor refers to the directory itself, which has a new name and still is the client's.
		r, err := w.s.Serves(host.Peer{UID: owner}, mine, passed)
		if err != nil {
			t.Errorf("%s: not served by descriptor: %v", name, err)
			continue
		}
		if r.Path != mine+".old" {
			t.Errorf("%s: served as %s", name, r.Path)
		}
		r.Close()
	}
}

// TestServesByOtherName: a passed directory is served under the name by which it was opened, unless it is the
// directory that the operator serves under the requested name.
func TestServesByOtherName(t *testing.T) {
	w := newServing(t, true)
	mine, again := w.top+"/mine", w.top+"/again"
	mkdir(t, mine, owner)
	mkdir(t, again, owner)
	if err := unix.Mount(w.everybody, again, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(again, unix.MNT_DETACH) //nolint:errcheck // private to this test's mount namespace
	for _, tt := range []struct{ path, fd, want string }{
		{w.everybody, w.everybody, w.everybody},
		{mine, w.everybody, w.everybody},
		{w.everybody, mine, mine},
		{w.everybody, again, w.everybody},
	} {
		r, err := w.s.Serves(host.Peer{UID: owner}, tt.path, opened(t, tt.fd))
		if err != nil {
			t.Errorf("%s, passed as %s: %v", tt.fd, tt.path, err)
			continue
		}
		if r.Path != tt.want {
			t.Errorf("%s, passed as %s: served as %s", tt.fd, tt.path, r.Path)
		}
		r.Close()
	}
}

func TestDeleted(t *testing.T) {
	w := newServing(t, true)
	mine := w.top + "/mine"
	mkdir(t, mine, owner)
	passed := opened(t, mine)
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if r, err := w.s.Serves(host.Peer{UID: owner}, mine, passed); err == nil {
		r.Close()
		t.Error("a deleted directory is served")
	}
	// A directory whose name is the one that the kernel reports for the deleted one.
	mkdir(t, mine+" (deleted)", owner)
	if r, err := w.s.Serves(host.Peer{UID: owner}, mine, passed); err == nil {
		r.Close()
		t.Error("another directory is served for a deleted one")
	}
}

// TestMountedOverPath: the name that the kernel reports for a directory must lead to it.
func TestMountedOverPath(t *testing.T) {
	w := newServing(t, true)
	mine := w.top + "/mine"
	mkdir(t, mine, owner)
	passed := opened(t, mine)
	mkdir(t, w.top+"/over", owner)
	if err := unix.Mount(w.top+"/over", mine, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mine, unix.MNT_DETACH) //nolint:errcheck // private to this test's mount namespace
	if _, err := w.s.Serves(host.Peer{UID: owner}, mine, passed); err == nil || !strings.Contains(err.Error(), "is not at") {
		t.Errorf("%v", err)
	}
}
