package isolate

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/rootfs"
)

// ahead waits until a root was written ahead and returns the device number of its file system.
func (s *Supervisor) ahead(t *testing.T) (dev uint64) {
	t.Helper()
	eventually(t, func() string {
		s.cells.roots.mu.Lock()
		defer s.cells.roots.mu.Unlock()
		if s.cells.roots.spare == nil {
			return "no root written ahead"
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(s.cells.roots.spare.mount.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		dev = st.Dev
		return ""
	})
	return dev
}

// seesRoot prints what a job sees of its jail's root and its mount.
const seesRoot = `find / -xdev -printf '%p %y %m %U %l %s\n' | sort; md5sum /etc/passwd /etc/services; grep ' / / ' /proc/self/mountinfo | cut -d' ' -f5- | sed 's/master:[0-9]* //'`

// TestRootAhead: a root that was written ahead equals one that is written on demand, and is used once.
func TestRootAhead(t *testing.T) {
	f := newFront(t)
	first := f.s.ahead(t)
	with := f.sh(seesRoot)
	number := f.s.standing()[0].rootDevice(t)
	if number != first {
		t.Errorf("the jail's root is file system %d, but %d was written ahead", number, first)
	}
	if second := f.s.ahead(t); second == first {
		t.Error("a root is used twice")
	}
	g := newFront(t)
	g.s.cells.roots.close() // no root is ahead
	if without := g.sh(seesRoot); with != without {
		t.Errorf("a root written ahead is\n%s\none written on demand is\n%s", with, without)
	}
	if !strings.Contains(with, "/etc/passwd f 644 ") {
		t.Errorf("seen: %s", with)
	}
}

// rootDevice returns the device number of the jail's root.
func (j *jail) rootDevice(t *testing.T) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/root/", j.initPID(t)), &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

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
