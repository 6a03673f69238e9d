package admit

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
)

// TestPinsEntries: the inode at a configured path is recorded, and links in the path are refused.
func TestPinsEntries(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/repo", os.Getuid())
	if err := os.Symlink("repo", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	c := serveDirs(t, Config{Entries: []Entry{{Path: dir + "/link/../repo"}, {Path: dir + "/link"}}})
	var st unix.Stat_t
	if err := unix.Stat(dir+"/repo", &st); err != nil {
		t.Fatal(err)
	}
	if got := c.Entries[0].Path; got != dir+"/repo" || c.pinned[got] != host.InodeOf(&st) {
		t.Errorf("%s, %+v", got, c.pinned)
	}
	if err := c.bad[dir+"/link"]; len(c.pinned) != 1 || err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v, %+v", err, c.pinned)
	}
}
