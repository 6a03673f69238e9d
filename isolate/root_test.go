package isolate

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/cell"
)

// ahead waits until a root was written ahead and returns the device number of its file system.
func (s *Supervisor) ahead(t *testing.T) (dev uint64) {
	t.Helper()
	eventually(t, func() string {
		if dev = s.cells.Inspect().SpareRoot; dev == 0 {
			return "no root written ahead"
		}
		return ""
	})
	return dev
}

// seesRoot prints what a job sees of its jail's root and its mount, without the number of its user, which depends on the slot.
const seesRoot = `find / -xdev -printf '%p %y %m %U %l %s\n' | sort; sed '/^job:/s/:[0-9]*:[0-9]*:/:N:N:/' /etc/passwd | md5sum; md5sum /etc/services; grep ' / / ' /proc/self/mountinfo | cut -d' ' -f5- | sed 's/master:[0-9]* //'`

// TestRootAhead: a root that was written ahead equals one that is written on demand, and is used once.
func TestRootAhead(t *testing.T) {
	f := newFront(t)
	first := f.s.ahead(t)
	with := f.Sh(seesRoot)
	number := rootDevice(t, f.s.standing()[0])
	if number != first {
		t.Errorf("the jail's root is file system %d, but %d was written ahead", number, first)
	}
	if second := f.s.ahead(t); second == first {
		t.Error("a root is used twice")
	}
	g := newFront(t)
	for ok := true; ok; ok = g.s.cells.Inspect().SpareRoot != 0 { // as long as a job runs, no root is written ahead
		other := frontOf(t, g.s, g.C, newRepo(t))
		other.Waiting()
	}
	if without := g.Sh(seesRoot); with != without {
		t.Errorf("a root written ahead is\n%s\none written on demand is\n%s", with, without)
	}
	if !strings.Contains(with, "/etc/passwd f 644 ") {
		t.Errorf("seen: %s", with)
	}
}

// rootDevice returns the device number of the jail's root.
func rootDevice(t *testing.T, j cell.JailState) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/root/", j.InitPID), &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}
