package cell

import (
	"os"
	"testing"
)

// TestIDMapsBounded: a jail keeps only a few id maps of returned users.
func TestIDMapsBounded(t *testing.T) {
	j := &Jail{idmaps: map[uint32]*os.File{}}
	for n := range uint32(3 * maxIDMaps) {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		j.idmaps[n] = f
	}
	all := len(j.idmaps)
	for n := range uint32(all) {
		m := j.idmaps[n]
		j.returnUser(n)
		if _, err := m.Stat(); (err != nil) != (j.idmaps[n] == nil) {
			t.Errorf("map %d: %v", n, err)
		}
	}
	if len(j.idmaps) != maxIDMaps || len(j.freeUsers) != all {
		t.Errorf("%d maps, %d free users", len(j.idmaps), len(j.freeUsers))
	}
	j.closeIDMaps()
}
