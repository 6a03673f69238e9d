package artifact

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// of is BeginOptions of a principal.
func of(principal string) BeginOptions {
	b := mine()
	b.Principal = principal
	return b
}

// TestFlood: one principal that stores more than there may be removes its own artifacts, and nobody else's.
func TestFlood(t *testing.T) {
	for name, o := range map[string]Options{
		"count":             {MaxCount: 16},
		"bytes":             {MaxBytes: 16 * 16 << 10},
		"count, in advance": {MaxCount: 256},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := newClock(), t.TempDir()
			o.Now = c.now
			s := openStore(t, dir, o)
			var quiet []string
			for i := range 7 {
				c.advance(time.Second)
				quiet = append(quiet, put(t, s, of("token:quiet"), fmt.Sprint(i), "").Handle())
			}
			if name == "bytes" { // another process has the store open as well
				s = openStore(t, dir, o)
			}
			loud := ""
			for i := range 3 * max(16, o.MaxCount) {
				c.advance(time.Second)
				loud = put(t, s, of("token:loud"), fmt.Sprint(i), "").Handle()
				if loud == "" {
					t.Fatalf("artifact %d of who stores much is not kept", i)
				}
			}
			s.sweep(t.Context())
			for i, handle := range quiet {
				if got, _, err := content(s, Reader{Principal: "token:quiet", Repos: ada.Repos}, handle); got != fmt.Sprint(i) || err != nil {
					t.Errorf("artifact %d of who stores little: %q, %v", i, got, err)
				}
			}
			if _, _, err := content(s, Reader{Principal: "token:loud", Repos: ada.Repos}, loud); err != nil {
				t.Errorf("the last of who stores much: %v", err)
			}
			list, err := s.artifacts()
			if u := total(list); err != nil || o.MaxCount > 0 && u.count > int64(o.MaxCount) || o.MaxBytes > 0 && u.bytes > o.MaxBytes {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// TestShareOfOne: what is larger than a share is stored as long as there is room, and takes nobody else's.
func TestShareOfOne(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir(), Options{Now: c.now, MaxBytes: 256 << 10})
	var handles []string
	for _, who := range strings.Split("aaaaaabb", "") {
		c.advance(time.Second)
		handles = append(handles, put(t, s, of("token:"+who), "x", "").Handle())
	}
	noise := make([]byte, 160<<10)
	seed := uint32(1)
	for i := range noise { // what does not become shorter
		seed = seed*1664525 + 1013904223
		noise[i] = byte(seed >> 24)
	}
	c.advance(time.Second)
	if got := put(t, s, of("token:b"), string(noise), "").Captured(); got.Handle != "" || !strings.Contains(got.Reason, "beside the others") {
		t.Errorf("%q: %s", got.Handle, got.Reason)
	}
	for _, handle := range handles {
		if _, err := s.Find(t.Context(), Reader{Owner: true}, handle); err != nil {
			t.Errorf("%s: %v", handle, err)
		}
	}
	if list, err := s.artifacts(); err != nil || len(list) != 8 {
		t.Errorf("%d artifacts, %v", len(list), err)
	}
}

// TestEvictions: whose artifacts make room.
func TestEvictions(t *testing.T) {
	s := &Store{maxCount: 16, maxBytes: 1600}
	list := func(owners string, bytes int64) (l []stored) {
		for i, owner := range strings.Split(owners, "") {
			l = append(l, stored{handle: fmt.Sprint(i), since: time.Unix(int64(i), 0), bytes: bytes, owner: owner})
		}
		return l
	}
	for _, tt := range []struct {
		name      string
		list      []stored
		principal string
		more      usage
		want      string // their owners
		refused   bool
	}{
		{"one", list("aaaaaaaaaaaaaaaa", 1), "a", usage{1, 1}, "aa", false},
		{"the one with most", list("abababababababbb", 1), "a", usage{1, 1}, "ba", false},
		{"the older of two", list("abababababababab", 1), "c", usage{1, 1}, "ab", false},
		{"oneself", list("aaaaaabbbbbbbbbb", 1), "b", usage{1, 1}, "bb", false},
		{"by bytes", append(list("aaaa", 300), list("bbbbbb", 10)...), "b", usage{1, 400}, "a", false},
		{"no room in a share", append(list("aaaa", 150), list("bbbb", 10)...), "b", usage{1, 1100}, "", true},
	} {
		victims, err := s.evictions(tt.list, tt.principal, tt.more)
		got := ""
		for _, a := range victims {
			got += a.owner
		}
		if got != tt.want || (err != nil) != tt.refused {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}
