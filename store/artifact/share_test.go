package artifact

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// of returns BeginOptions for a principal.
func of(principal string) BeginOptions {
	b := mine()
	b.Principal = principal
	return b
}

// TestFlood: a principal that stores more than the quota evicts its own artifacts only.
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
			var few []string
			for i := range 7 {
				c.advance(time.Second)
				few = append(few, put(t, s, of("token:few"), fmt.Sprint(i), "").Handle())
			}
			if name == "bytes" { // another process has the store open, too
				s = openStore(t, dir, o)
			}
			loud := ""
			for i := range 3 * max(16, o.MaxCount) {
				c.advance(time.Second)
				loud = put(t, s, of("token:loud"), fmt.Sprint(i), "").Handle()
				if loud == "" {
					t.Fatalf("artifact %d of the principal with many was not stored", i)
				}
			}
			s.disk.Sweep(t.Context())
			for i, handle := range few {
				if got, _, err := content(s, Reader{Principal: "token:few", Repos: ada.Repos}, handle); got != fmt.Sprint(i) || err != nil {
					t.Errorf("artifact %d of the principal with few: %q, %v", i, got, err)
				}
			}
			if _, _, err := content(s, Reader{Principal: "token:loud", Repos: ada.Repos}, loud); err != nil {
				t.Errorf("the last of the principal with many: %v", err)
			}
			list, err := s.disk.List()
			if u := total(list); err != nil || o.MaxCount > 0 && u.count > int64(o.MaxCount) || o.MaxBytes > 0 && u.bytes > o.MaxBytes {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// TestShareOfOne: an artifact larger than a share is stored only while there is room, and never evicts another
// principal's.
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
	for i := range noise { // incompressible
		seed = seed*1664525 + 1013904223
		noise[i] = byte(seed >> 24)
	}
	c.advance(time.Second)
	if got := put(t, s, of("token:b"), string(noise), "").Captured(); got.Handle != "" || !strings.Contains(got.Reason, "share of the quota") {
		t.Errorf("%q: %s", got.Handle, got.Reason)
	}
	for _, handle := range handles {
		if _, err := s.Find(t.Context(), Reader{Owner: true}, handle); err != nil {
			t.Errorf("%s: %v", handle, err)
		}
	}
	if list, err := s.disk.List(); err != nil || len(list) != 8 {
		t.Errorf("%d artifacts, %v", len(list), err)
	}
}
