package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestAccounts: accounts are those of the files, and the files are read again after each change, but not without one.
func TestAccounts(t *testing.T) {
	dir := t.TempDir()
	f := &accountFiles{passwd: filepath.Join(dir, "passwd"), group: filepath.Join(dir, "group")}
	const passwd, group = "ada:x:1000:100::/home/ada:/bin/sh\nodd:x:1001:x::/:\nshort:x:1002\n", "audio:x:29:bob,ada\nvideo:x:44:bob\nodd:x\n"
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, uid, gid uint32, groups ...uint32) {
		t.Helper()
		a, known := f.lookup(uid)
		if known != (gid != 0) || a.UID != uid || a.GID != gid || !slices.Equal(a.Groups, groups) {
			t.Errorf("%s: %+v, %v", what, a, known)
		}
	}
	want("no files", 1000, 0)
	write(f.passwd, passwd)
	want("no groups", 1000, 100)
	write(f.group, group)
	want("both", 1000, 100, 29)
	want("another", 1002, 0)
	want("without a group", 1001, 0)
	want("again", 1000, 100, 29)
	// A change within a step of the file's times is noticed, too.
	if err := os.WriteFile(f.group, []byte("games:x:60:ada\n"+group[len("games:x:60:ada\n"):]), 0o600); err != nil {
		t.Fatal(err)
	}
	f.seen = [2]fileVersion{versionOf(f.passwd), versionOf(f.group)}
	want("changed at once", 1000, 100, 60)

	f.seen[0].ctime.Sec -= int64(settling/time.Second) + 1
	if versionOf(f.passwd).settled() || !f.seen[0].settled() {
		t.Error("a file is settled when it was changed a while ago")
	}
	f.seen, f.whole = [2]fileVersion{versionOf(f.passwd), versionOf(f.group)}, true // as if they had been changed a while ago
	f.last.GID = 7
	want("remembered", 1000, 7, 60)
	want("of another user", 1001, 0)
	want("read again", 1000, 100, 60)
}
