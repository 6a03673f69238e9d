package artifact

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// TestRoomAhead: of a large store the oldest go before the quota is met, in the background, and no more than that.
func TestRoomAhead(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, MaxCount: 256})
	var handles []string
	for i := range 249 {
		c.advance(time.Second)
		handles = append(handles, put(t, s, mine(), fmt.Sprint(i), "").Handle())
	}
	sandboxtest.Eventually(t, 5*time.Second, "there is room", func() bool { return s.quota.read().count == 240 })
	list, err := s.artifacts()
	if err != nil || len(list) != 240 || list[0].handle != handles[9] || s.quota.read() != total(list) {
		t.Fatalf("%d are left, %v; the usage is %+v", len(list), err, s.quota.read())
	}
	if got, _, err := content(s, ada, handles[9]); err != nil || got != "9" {
		t.Errorf("the oldest that is left: %q, %v", got, err)
	}
	s.makeRoomAhead() // there is nothing to do
	if got := s.quota.read().count; got != 240 {
		t.Errorf("%d are left", got)
	}
}

// TestRoomAheadOfNone: a usage that says too much is put right.
func TestRoomAheadOfNone(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{MaxCount: 256})
	put(t, s, mine(), "x", "")
	s.quota.write(usage{250, 1})
	s.makeRoomAhead()
	if list, err := s.artifacts(); err != nil || len(list) != 1 || s.quota.read() != total(list) {
		t.Errorf("%d are left, %v; the usage is %+v", len(list), err, s.quota.read())
	}
}

// TestTaken: of two who take the same artifact it is one's.
func TestTaken(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	handle := put(t, s, mine(), "x", "").Handle()
	first, err := s.take(handle)
	second, again := s.take(handle)
	if !first || second || err != nil || again != nil {
		t.Errorf("%v, %v; then %v, %v", first, err, second, again)
	}
}

// TestShort: what is short is in its member as it is, and what is longer is compressed; any gzip reads both.
func TestShort(t *testing.T) {
	var p gzipHasherPool
	for _, size := range []int{0, 1, plainMost, plainMost + 1, small} {
		var b bytes.Buffer
		text, owner := []byte(strings.Repeat("x", size)), ownerOf("h", "user:ada")
		sum, err := p.short(&b, owner, text)
		if err != nil || sum != (sealed{int64(size), sha256.Sum256(text)}) {
			t.Fatalf("%d: %+v, %v", size, sum, err)
		}
		if plain := bytes.Contains(b.Bytes(), text); plain != (size <= plainMost) {
			t.Errorf("%d: it is there as it is: %v", size, plain)
		}
		gz, err := gzip.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(gz)
		if err != nil || !bytes.Equal(got, text) || !bytes.Equal(gz.Extra, owner) {
			t.Errorf("%d: %d bytes, %q, %v", size, len(got), gz.Extra, err)
		}
	}
}

// TestNothingHeld: what is synced is closed, and nothing is open of an artifact then.
func TestNothingHeld(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	for range 40 { // more than a group keeps
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
