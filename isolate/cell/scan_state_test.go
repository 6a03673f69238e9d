package cell

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/scan"
)

// TestTakeEvents: only an inotify instance is accepted.
func TestTakeEvents(t *testing.T) {
	open := func(fd int, err error) *os.File {
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "test")
	}
	inotify := func() *os.File { return open(unix.InotifyInit1(unix.IN_CLOEXEC)) }
	for _, tt := range []struct {
		name  string
		files []*os.File
		ok    bool
	}{
		{"nothing", nil, true},
		{"inotify", []*os.File{inotify()}, true},
		{"two", []*os.File{inotify(), inotify()}, false},
		{"eventfd", []*os.File{open(unix.Eventfd(0, unix.EFD_CLOEXEC))}, false},
		{"fanotify's kin by name", []*os.File{open(unix.MemfdCreate("anon_inode:inotify", unix.MFD_CLOEXEC))}, false},
		{"device", []*os.File{open(unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0))}, false},
	} {
		got, err := takeEvents(tt.files)
		if (err == nil) != tt.ok || (got != nil) != (tt.ok && tt.files != nil) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
		if got != nil && host.SomethingToRead(got) {
			t.Errorf("%s: there is something to read", tt.name)
		}
		for _, f := range tt.files {
			if closed := f.Close() != nil; closed == tt.ok {
				t.Errorf("%s: closed %v", tt.name, closed)
			}
		}
		if got != nil && !host.SomethingToRead(got) {
			t.Errorf("%s: not readable after it was closed", tt.name)
		}
	}
}

// TestMergeAnswers: if two answers do not fit together, the first paths of both are kept, and the others counted.
func TestMergeAnswers(t *testing.T) {
	list := func(first, of string) string {
		all := first + "\x00"
		for n := 0; len(all) < scan.MaxPaths-16; n++ {
			all += fmt.Sprint(of, "/", n, "\x00")
		}
		return all
	}
	a, b := scan.Answer{Paths: list(".git/config", "a"), More: 3}, scan.Answer{Paths: list("z/.git/hooks/update", "b"), More: 4}
	paths := strings.Count(a.Paths, "\x00") + strings.Count(b.Paths, "\x00")
	sum := mergeAnswers(&a, &b)
	got := strings.Split(strings.TrimSuffix(sum.Paths, "\x00"), "\x00")
	if !slices.Contains(got, ".git/config") || !slices.Contains(got, "z/.git/hooks/update") || len(sum.Paths) > scan.MaxPaths {
		t.Errorf("%d bytes, %.100q", len(sum.Paths), got)
	}
	if len(got)+int(sum.More) != paths+7 {
		t.Errorf("%d paths and %d more of %d", len(got), sum.More, paths+7)
	}
	if again := mergeAnswers(&a, &scan.Answer{Paths: a.Paths}); again.Paths != a.Paths || again.More != 3 {
		t.Error("the same paths are named or counted twice")
	}
	if got := sorted("b\x00a/b\x00a\x00"); got != "a\x00a/b\x00b\x00" {
		t.Errorf("%q", got)
	}
}

// TestWindowShared: a scan is skipped only after a job beside which no other ran that may have files in common with it: that one could
// have passed on a descriptor, and a store through it into mapped memory is no event.
func TestWindowShared(t *testing.T) {
	events, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	state := &scanState{events: os.NewFile(uintptr(events), "inotify"), armed: true}
	defer state.close()
	here, there := &jailKey{}, &jailKey{}
	there.Dev = 1
	var all liveWindows
	skipped := func(m *Window) bool {
		m.End()
		return m.nothingHappened()
	}
	if a := all.open(here, state, true); !skipped(a) {
		t.Error("alone: a scan is made")
	}
	a, b := all.open(here, state, true), all.open(here, state, true)
	if skipped(a) || skipped(b) {
		t.Error("two at a time: no scan is made")
	}
	if a, b := all.open(here, state, true), all.open(there, state, true); !skipped(a) || !skipped(b) {
		t.Error("on two file systems: a scan is made")
	}
	a = all.open(here, state, true)
	all.open(here, state, true).End()
	if skipped(a) {
		t.Error("after another has ended: no scan is made")
	}
	if skipped(all.open(here, state, false)) {
		t.Error("beside another supervisor: no scan is made")
	}
}
