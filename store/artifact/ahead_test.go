package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestEvictsInBackground: in a large store, the oldest artifacts are evicted in the background before the quota is
// reached, and no more than necessary.
func TestEvictsInBackground(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, MaxCount: 256})
	var handles []string
	for i := range 249 {
		c.advance(time.Second)
		handles = append(handles, put(t, s, mine(), fmt.Sprint(i), "").Handle())
	}
	sandboxtest.Eventually(t, 5*time.Second, "artifacts are evicted", func() bool { return s.quota.read().count == 240 })
	list, err := s.artifacts()
	if err != nil || len(list) != 240 || list[0].handle != handles[9] || s.quota.read() != total(list) {
		t.Fatalf("%d artifacts remain, %v; the recorded usage is %+v", len(list), err, s.quota.read())
	}
	if got, _, err := content(s, ada, handles[9]); err != nil || got != "9" {
		t.Errorf("the oldest remaining artifact: %q, %v", got, err)
	}
	s.makeRoomAhead() // does nothing
	if got := s.quota.read().count; got != 240 {
		t.Errorf("%d artifacts remain", got)
	}
}

// TestWrongUsageIsCorrected: a recorded usage that is too high is corrected, and evicts nothing.
func TestWrongUsageIsCorrected(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxCount: 256})
	put(t, s, mine(), "x", "")
	s.quota.write(usage{250, 1})
	s.makeRoomAhead()
	if list, err := s.artifacts(); err != nil || len(list) != 1 || s.quota.read() != total(list) {
		t.Errorf("%d artifacts remain, %v; the recorded usage is %+v", len(list), err, s.quota.read())
	}
}

// TestUnlinkOnce: if two callers unlink the same artifact, exactly one gets mine = true.
func TestUnlinkOnce(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	handle := put(t, s, mine(), "x", "").Handle()
	first, err := s.unlink(handle)
	second, again := s.unlink(handle)
	if !first || second || err != nil || again != nil {
		t.Errorf("%v, %v; then %v, %v", first, err, second, again)
	}
}

// TestSyncClosesDescriptors: syncing closes the descriptors of artifacts.
func TestSyncClosesDescriptors(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	for range 40 { // more than one group
		put(t, s, mine(), "x", "")
	}
	s.syncer.sync()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, filepath.Join(dir, storeName, "runtime-")) {
			t.Errorf("%s is open", to)
		}
	}
}
