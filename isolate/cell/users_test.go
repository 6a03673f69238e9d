package cell

import (
	"os"
	"testing"
)

// TestIDMapsBounded: a jail keeps only a few id maps of returned users.
func TestIDMapsBounded(t *testing.T) {
	u := newJobUsers(false, nil)
	u.free = nil
	for n := range uint32(3 * maxIDMaps) {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		u.maps[n] = f
	}
	all := len(u.maps)
	for n := range uint32(all) {
		m := u.maps[n]
		u.giveBack(n)
		if _, err := m.Stat(); (err != nil) != (u.maps[n] == nil) {
			t.Errorf("map %d: %v", n, err)
		}
	}
	if len(u.maps) != maxIDMaps || len(u.free) != all {
		t.Errorf("%d maps, %d free users", len(u.maps), len(u.free))
	}
	u.close()
}
