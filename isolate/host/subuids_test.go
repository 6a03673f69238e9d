package host

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSubUIDs: usage of a subordinate id is charged to the holder of its range, and invalid lines of /etc/subuid are
// ignored.
func TestSubUIDs(t *testing.T) {
	dir := t.TempDir()
	s := &Subordinates{subuid: filepath.Join(dir, "subuid"), passwd: filepath.Join(dir, "passwd"), log: slog.New(slog.DiscardHandler)}
	const passwd = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:1001::/:\nbroken:x\nodd:x:many:1::/:\nada:x:7:7::/:\n"
	for _, tt := range []struct {
		name, subuid string
		want         map[uint32]uint32
	}{
		{"none", "", map[uint32]uint32{0: 0, 1000: 0, 100000: 0}},
		{
			"two users", "ada:100000:65536\nbob:165536:65536\n",
			map[uint32]uint32{0: 0, 99999: 0, 100000: 1000, 165535: 1000, 165536: 1001, 231071: 1001, 231072: 0, 1000: 0},
		},
		{"several ranges, not sorted", "ada:300000:10\nbob:200000:10\nada:100000:10", map[uint32]uint32{100009: 1000, 100010: 0, 200005: 1001, 300000: 1000}},
		{"number", "1234:100000:10\n", map[uint32]uint32{100001: 1234}},
		{"no account here", "carol:100000:10\ncarol:200000:10\ndave:300000:1\n", map[uint32]uint32{100005: 100000, 200005: 100000, 300000: 0}},
		{"root's", "root:100000:1000000000\nada:200000:10\n", map[uint32]uint32{100000: 0, 200001: 1000}},
		{"root's by number", "0:100000:10\n", map[uint32]uint32{100000: 0}},
		{"one within another", "ada:100000:1000\nbob:100100:10\n", map[uint32]uint32{100099: 1000, 100105: 1001, 100110: 1000, 100999: 1000, 101000: 0}},
		{"with root in it", "ada:0:10\n", map[uint32]uint32{0: 0, 1: 1000, 9: 1000}},
		{"root alone in it", "ada:0:1\n", map[uint32]uint32{0: 0, 1: 0}},
		{"its own holder in it", "ada:1000:10\n", map[uint32]uint32{1000: 0, 1001: 1000}},
		{"of a subordinate", "ada:100000:10\n100005:200000:10\n", map[uint32]uint32{200001: 1000}},
		{"in a circle", "1000:1001:1\n1001:1000:1\n", map[uint32]uint32{1000: 1000, 1001: 1001}},
		{"to the end", "ada:4294967290:100\n", map[uint32]uint32{4294967289: 0, 4294967295: 1000}},
		{
			"odd lines", "# ada:1:2\n\n  bob:100000:10  \r\nada\nada:1\n:200000:10\nada:-1:10\nada:300000:0\nada:300000:99999999999\nada:4294967296:1\nada:x:1\n" +
				"ada:300000:1:1\nada:0x10:1\nada: 300000:1\n" + strings.Repeat("x", 1<<17) + ":1:1\nada:500000:10",
			map[uint32]uint32{100003: 1001, 200000: 0, 300000: 0, 16: 0, 500001: 1000},
		},
	} {
		if err := os.WriteFile(s.subuid, []byte(tt.subuid), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.passwd, []byte(passwd), 0o600); err != nil {
			t.Fatal(err)
		}
		s.seen = [2]fileVersion{} // the file may have been written within one tick
		for uid, want := range tt.want {
			if got := s.Holder(uid); got != want {
				t.Errorf("%s: %d is held by %d, want %d", tt.name, uid, got, want)
			}
		}
	}
}

// TestSubUIDsReread: the files are read again after a change, and only up to the bounds.
func TestSubUIDsReread(t *testing.T) {
	dir := t.TempDir()
	s := &Subordinates{subuid: filepath.Join(dir, "subuid"), passwd: filepath.Join(dir, "passwd"), log: slog.New(slog.DiscardHandler)}
	replace := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, uid, holder uint32) {
		t.Helper()
		if got := s.Holder(uid); got != holder {
			t.Errorf("%s: %d is held by %d, want %d", what, uid, got, holder)
		}
	}
	want("no file", 100005, 0)
	replace(s.subuid, "ada:100000:10\n")
	want("no account", 100005, 100000)
	replace(s.passwd, "ada:x:1000:1000::/:\n")
	want("an account", 100005, 1000)
	replace(s.subuid, "bob:100000:10\n")
	want("another's", 100005, 100000)
	if err := os.Remove(s.subuid); err != nil {
		t.Fatal(err)
	}
	want("removed", 100005, 0)

	replace(s.subuid, "7:100000:10\n"+strings.Repeat("#\n", maxSubUIDBytes/2-8)+"7:200000:10\n7:300000:10\n")
	want("before the bound", 100005, 7)
	want("beyond it", 300005, 0)
	var many strings.Builder
	for i := range maxSubUIDRanges + 1 {
		fmt.Fprintf(&many, "7:%d:1\n", 1_000_000+i)
	}
	replace(s.subuid, many.String())
	want("the last of as many as may be", 1_000_000+maxSubUIDRanges-1, 7)
	want("one more", 1_000_000+maxSubUIDRanges, 0)

	if err := os.Remove(s.subuid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(s.subuid, 0o600); err != nil {
		t.Fatal(err)
	}
	want("a FIFO", 100005, 0)
}

// TestPayer: usage is charged to the holder of the range, and permissions stay those of the id.
func TestPayer(t *testing.T) {
	for _, tt := range []struct {
		peer Peer
		want uint32
	}{{Peer{}, 0}, {Peer{UID: 1000}, 1000}, {Peer{UID: 100005, Holder: 1000}, 1000}} {
		if got := tt.peer.Payer(); got != tt.want {
			t.Errorf("%+v: %d", tt.peer, got)
		}
	}
}
