package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
	"corral/store/at"
)

// open opens a directory of artifacts; options that are not set have large values.
func openDisk(t *testing.T, dir string, o Options) *diskDir {
	t.Helper()
	state, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	o.TTL, o.MaxCount, o.MaxBytes, o.Now = cmp.Or(o.TTL, time.Hour), cmp.Or(o.MaxCount, 1000), cmp.Or(o.MaxBytes, 1<<30), time.Now
	d, err := openDir(state, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// put stores an artifact with that standard output, and returns its handle.
func putIn(t *testing.T, d *diskDir, stdout string) string {
	t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	handle, _ := newHandle("repo", now)
	temp, err := d.Prepare(handle)()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Drop(temp)
	if _, err := io.WriteString(temp.Writer(0), stdout); err != nil {
		t.Fatal(err)
	}
	hash := strings.Repeat("ab", 32)
	m := &Manifest{
		Version: manifestVersion, ArtifactID: handle, RepoID: "repo", Principal: "user:ada", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		StdoutBytes: int64(len(stdout)), StdoutSHA256: hash, StderrSHA256: hash,
	}
	if err := d.Commit(temp, m, [2]int64{int64(len(stdout)), -1}); err != nil {
		t.Fatal(err)
	}
	return handle
}

// TestCommit: a committed artifact is listed and can be opened, also by another process; a dropped one leaves nothing.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	d, other := openDisk(t, dir, Options{FsyncEach: true}), openDisk(t, dir, Options{ReadOnly: true})
	handle := putIn(t, d, "text")
	dropped, err := d.Prepare("runtime-x-1-0123456789abcdef")()
	if err != nil {
		t.Fatal(err)
	}
	d.Drop(dropped)
	for _, d := range []*diskDir{d, other} {
		list, err := d.List()
		if err != nil || len(list) != 1 || list[0].Handle != handle || list[0].Owner != "user:ada" || list[0].Bytes != 3*blockSize {
			t.Errorf("%+v, %v", list, err)
		}
		a, err := d.Open(handle)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		f, err := a.Stream(Stdout)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if b, err := io.ReadAll(f); err != nil || string(b) != "text" || a.Manifest.ArtifactID != handle {
			t.Errorf("%q, %v", b, err)
		}
	}
	if names, err := os.ReadDir(filepath.Join(dir, dirName)); err != nil || len(names) != 2 { // and the usage
		t.Errorf("%v, %v", names, err)
	}
	tiny := openDisk(t, t.TempDir(), Options{MaxBytes: 1})
	temp, err := tiny.Prepare(handle)()
	if err != nil {
		t.Fatal(err)
	}
	defer tiny.Drop(temp)
	if err := tiny.Commit(temp, &Manifest{ArtifactID: handle}, [2]int64{-1, -1}); err == nil {
		t.Error("an artifact larger than the quota was stored")
	}
}

// TestClosed: after Close, and without a directory, there are no artifacts.
func TestClosed(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir, Options{})
	handle := putIn(t, d, "x")
	d.Close()
	d.Close()
	for name, d := range map[string]*diskDir{"closed": d, "without a directory": openDisk(t, t.TempDir(), Options{ReadOnly: true})} {
		if list, err := d.List(); len(list) != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, list, err)
		}
		if _, err := d.Open(handle); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := d.OpenStream(handle, Stdout); err == nil {
			t.Errorf("%s: a stream was opened", name)
		}
	}
}

// TestWrongUsageIsCorrected: a recorded usage that is too high is corrected, and evicts nothing.
func TestWrongUsageIsCorrected(t *testing.T) {
	d := openDisk(t, t.TempDir(), Options{MaxCount: 256})
	putIn(t, d, "x")
	d.quota.write(usage{256, 1})
	putIn(t, d, "y")
	if list, err := d.List(); err != nil || len(list) != 2 || d.quota.read() != total(list) {
		t.Errorf("%d artifacts remain, %v; the recorded usage is %+v", len(list), err, d.quota.read())
	}
}

// TestUnlinkOnce: if two callers unlink the same artifact, exactly one gets mine = true.
func TestUnlinkOnce(t *testing.T) {
	d := openDisk(t, t.TempDir(), Options{})
	handle := putIn(t, d, "x")
	first, err := d.unlink(handle)
	second, again := d.unlink(handle)
	if !first || second || err != nil || again != nil {
		t.Errorf("%v, %v; then %v, %v", first, err, second, again)
	}
}

// TestSyncClosesDescriptors: syncing closes the descriptors of artifacts.
func TestSyncClosesDescriptors(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir, Options{})
	for range 40 { // more than one group
		putIn(t, d, "x")
	}
	d.syncer.sync()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, filepath.Join(dir, dirName, "runtime-")) {
			t.Errorf("%s is open", to)
		}
	}
}

// TestSweepComesFirst: a sweep that locks a temporary directory before its maker does, and removes it by name when its maker has made
// another one, does not remove that.
func TestSweepComesFirst(t *testing.T) {
	d := openDisk(t, t.TempDir(), Options{})
	for range 100_000 { // the sweep is first in one of some rounds
		handle, _ := newHandle("repo", time.Now())
		first := tempPrefix + handle + ".0"
		made, locked := make(chan struct{}), make(chan int, 1)
		go func() { locked <- lockNew(d, first, made) }()
		temp, err := d.Prepare(handle)()
		close(made)
		if err != nil {
			t.Fatal(err)
		}
		swept := <-locked
		if swept >= 0 {
			_ = removeDir(d.fd, first) // the maker has removed it
			unix.Close(swept)
			if err := unix.Faccessat(d.fd, temp.name+"/"+artifactFiles[0], unix.F_OK, 0); err != nil {
				t.Errorf("%s: %v", temp.name, err)
			}
		}
		d.Drop(temp)
		if swept >= 0 {
			return
		}
	}
	t.Error("no sweep was first")
}

// lockNew locks a directory as a sweep does, as soon as it is there, and returns its descriptor: -1 if others were first until done.
func lockNew(d *diskDir, name string, done <-chan struct{}) int {
	for {
		select {
		case <-done:
			return -1
		default:
		}
		fd, err := at.Open(d.fd, name, at.Dir)
		if err != nil {
			continue
		}
		if flock.Try(fd, unix.LOCK_EX) == nil {
			return fd
		}
		unix.Close(fd)
	}
}

// TestEvictions: which principals' artifacts are evicted.
func TestEvictions(t *testing.T) {
	limit := usage{16, 1600}
	list := func(owners string, bytes int64) (l []entry) {
		for i, owner := range strings.Split(owners, "") {
			l = append(l, entry{Handle: fmt.Sprint(i), Since: time.Unix(int64(i), 0), Bytes: bytes, Owner: owner})
		}
		return l
	}
	for _, tt := range []struct {
		name      string
		list      []entry
		principal string
		more      usage
		want      string // owners of the victims
		refused   bool
	}{
		{"one", list("aaaaaaaaaaaaaaaa", 1), "a", usage{1, 1}, "aa", false},
		{"the largest owner", list("abababababababbb", 1), "a", usage{1, 1}, "ba", false},
		{"the older of two", list("abababababababab", 1), "c", usage{1, 1}, "ab", false},
		{"the principal itself", list("aaaaaabbbbbbbbbb", 1), "b", usage{1, 1}, "bb", false},
		{"by bytes", append(list("aaaa", 300), list("bbbbbb", 10)...), "b", usage{1, 400}, "a", false},
		{"above the share", append(list("aaaa", 150), list("bbbb", 10)...), "b", usage{1, 1100}, "", true},
	} {
		victims, err := evictions(limit, tt.list, tt.principal, tt.more)
		got := ""
		for _, a := range victims {
			got += a.Owner
		}
		if got != tt.want || (err != nil) != tt.refused {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}
