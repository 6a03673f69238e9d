package cell

import (
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/rootfs"
)

// TestStaleRootDiscarded: a root that was written ahead is not used after the host has changed.
func TestStaleRootDiscarded(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	entry := func(path string) rootfs.Entry { return rootfs.Entry{Path: path, Data: []byte("x"), Mode: 0o644} }
	for name, c := range map[string]struct {
		wanted []rootfs.Entry
		used   bool
	}{
		"the same":     {[]rootfs.Entry{entry("/a"), entry("/b")}, true},
		"one more":     {[]rootfs.Entry{entry("/a"), entry("/b"), entry("/c")}, true},
		"one is gone":  {[]rootfs.Entry{entry("/a")}, false},
		"another name": {[]rootfs.Entry{entry("/a"), entry("/c")}, false},
	} {
		mount, err := newRoot()
		if err != nil {
			t.Fatal(err)
		}
		r := &roots{spare: &spareRoot{tree: rootfs.Tree{Entries: []rootfs.Entry{entry("/a"), entry("/b")}}, mount: mount}}
		wanted := rootfs.Tree{Entries: c.wanted}
		taken := r.take(&wanted)
		if (taken != nil) != c.used || r.spare != nil {
			t.Errorf("%s: used %v, left %v", name, taken != nil, r.spare)
		}
		if c.used && len(wanted.Entries) != len(c.wanted)-2 {
			t.Errorf("%s: %v is still missing", name, wanted.Entries)
		}
		if err := mount.Close(); (err == nil) != c.used {
			t.Errorf("%s: closed: %v", name, err)
		}
	}
}
