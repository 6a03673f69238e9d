package admit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
)

// TestServesCommon tests the decision itself.
func TestServesCommon(t *testing.T) {
	const stranger = 1002
	top := newRepo(t)
	for _, dir := range []string{"main", "main/.git", "other", "other/.git", "bare", "bare.git", "listed", "listed.git", "plain", "other/.git/modules", "other/.git/modules/sub", "other/modules"} {
		mkdir(t, filepath.Join(top, dir), owner)
	}
	mkdir(t, top+"/theirs", stranger)
	if err := os.Symlink("main", top+"/link"); err != nil {
		t.Fatal(err)
	}
	operator := []Entry{{Path: top + "/main"}, {Path: top + "/listed"}, {Path: top + "/listed.git"}, {Path: top + "/theirs"}}
	peer, root := host.Peer{UID: owner}, host.Peer{Embedded: true}
	for _, tt := range []struct {
		name   string
		peer   host.Peer
		path   string
		opened string // "" is no descriptor
		own    bool
		want   string // in the error; "" if it is served
	}{
		{"listed", peer, "listed.git", "", false, ""},
		{"listed, opened", peer, "listed.git", "listed.git", false, ""},
		{"listed, and no git directory", peer, "listed", "", false, "not named .git"},
		{"listed, and no git directory, opened", peer, "listed", "listed", false, "not named .git"},
		{"listed, under another name", peer, "listed.git", "listed", false, "not named .git"},
		{"listed, and no git directory, own", peer, "listed", "listed", true, "not named .git"},
		{"listed and named by root", root, "listed", "", false, "not named .git"},
		{"of a listed one", peer, "main/.git", "", false, ""},
		{"of a listed one, opened", peer, "main/.git", "main/.git", false, ""},
		{"of a listed one, another opened", peer, "main/.git", "other/.git", false, "another directory"},
		{"somebody else's that is listed", peer, "theirs", "theirs", false, "not named .git"},
		{"of one that is not listed", peer, "other/.git", "other/.git", false, "does not serve"},
		{"own", peer, "other/.git", "other/.git", true, ""},
		{"own, by its path", peer, "other/.git", "", true, "does not serve"},
		{"own, bare", peer, "bare.git", "bare.git", true, ""},
		{"own, a submodule's", peer, "other/.git/modules/sub", "other/.git/modules/sub", true, ""},
		{"a submodule's, named as such alone", peer, "other/.git/modules/sub", "other/modules", true, "not named .git"},
		{"own, and no git directory", peer, "bare", "bare", true, "not named .git"},
		{"a stranger's", host.Peer{UID: stranger}, "other/.git", "other/.git", true, "belongs to user 1001"},
		{"named by root", root, "other/.git", "", false, ""},
		{"named by root, bare", root, "plain", "", false, ""},
		{"not named by root", root, "bare", "", false, "does not serve"},
		{"named by root, for somebody else", peer, "other/.git", "", false, "does not serve"},
		{"through a link", root, "link/.git", "", false, "does not serve"},
		{"not there", peer, "main/x", "", false, "does not serve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(Config{
				Own: tt.own, Entries: operator, Commons: []string{top + "/other/.git", top + "/plain", top + "/listed", top + "/gone"},
				Log: slog.New(slog.DiscardHandler),
			}, &probe.Prober{})
			if err != nil {
				t.Fatal(err)
			}
			var dir *os.File
			if tt.opened != "" {
				fd, err := unix.Open(filepath.Join(top, tt.opened), unix.O_PATH|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				dir = os.NewFile(uintptr(fd), tt.opened)
				defer dir.Close()
			}
			r, err := s.servesCommon(tt.peer, filepath.Join(top, tt.path), dir)
			if r != nil {
				r.Close()
			}
			var refusal *job.Refusal
			if (tt.want == "") != (err == nil) || err != nil && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
