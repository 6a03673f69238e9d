package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// bareJail creates a jail without a process.
func bareJail(t testing.TB, i *Instance) *Jail {
	t.Helper()
	j, err := i.Jail("jail", 0)
	if err != nil {
		t.Fatal(err)
	}
	if i.tree.layout == "v2" {
		if err := enableIn(j.unified(""), neededControllers(i.tree.path(i.tree.unified))); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// The files of a new job contain its limits, and none after Update lifts them.
func TestLimitsOfNewJob(t *testing.T) {
	const none = "9223372036854771712" // 2^63 minus a page
	limits := Limits{MemoryBytes: 96 << 20, MilliCPUs: 8, PIDs: 12}
	type row struct{ file, set, lifted string }
	v1 := []row{
		{"memory.limit_in_bytes", "100663296", none},
		{"memory.memsw.limit_in_bytes", "100663296", none},
		{"cpu.cfs_period_us", "1000000", "1000000"},
		{"cpu.cfs_quota_us", "8000", "-1"},
		{"pids.max", "12", "max"},
	}
	v2 := []row{
		{"memory.max", "100663296", "max"},
		{"memory.swap.max", "0", "max"},
		{"cpu.max", "8000 1000000", "max 100000"},
		{"pids.max", "12", "max"},
	}
	everywhere(t, func(t *testing.T, s setting) {
		rows := v1
		if s.tree.layout == "v2" {
			rows = v2
		}
		g := newJob(t, bareJail(t, newInstance(t, s)), "job", limits)
		check := func(when string, want func(row) string) {
			for _, r := range rows {
				controller, _, _ := strings.Cut(r.file, ".")
				b, err := os.ReadFile(filepath.Join(g.in(controller).Path, r.file))
				if errors.Is(err, fs.ErrNotExist) && strings.Contains(r.file, "sw") && !g.instance.has.swap {
					continue
				}
				if got := strings.TrimSpace(string(b)); err != nil || got != want(r) {
					t.Errorf("%s: %s is %q, %v, want %q", when, r.file, got, err, want(r))
				}
			}
		}
		check("set", func(r row) string { return r.set })
		if err := g.Update(Limits{}); err != nil {
			t.Fatal(err)
		}
		check("lifted", func(r row) string { return r.lifted })
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// The memory+swap limit must never be below the memory limit, so an update writes it before and after.
func TestMemswIsNeverBelowMemory(t *testing.T) {
	const limit, memsw = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	for _, c := range []struct {
		swap, lift bool
		want       []v1Limit
	}{
		{false, false, []v1Limit{{"memory", limit, "8", false}, {"memory", tcpLimit, "8", true}}},
		{true, false, []v1Limit{{"memory", limit, "8", false}, {"memory", memsw, "8", false}, {"memory", tcpLimit, "8", true}}},
		{true, true, []v1Limit{
			{"memory", memsw, "8", true}, {"memory", limit, "8", false}, {"memory", memsw, "8", false}, {"memory", tcpLimit, "8", true},
		}},
	} {
		var got []v1Limit
		for _, f := range (Limits{MemoryBytes: 8}).v1(c.swap, c.lift) {
			if f.controller == "memory" {
				got = append(got, f)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("swap %v, lift %v: %v, want %v", c.swap, c.lift, got, c.want)
		}
	}
}

// A job whose creation fails leaves no group or descriptor, and does not touch existing groups.
func TestFailedJobLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		j := bareJail(t, newInstance(t, s))
		before := descriptors(t)
		if g, err := j.Job("job", Limits{PIDs: 1 << 40}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("PIDs above the kernel's maximum: got %v, %v, want EINVAL", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
		last := j.jailDirs.Child(j.jailDirs.Len()-1, "job").Path
		if err := os.Mkdir(last, 0o755); err != nil {
			t.Fatal(err)
		}
		if g, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrExist) {
			t.Errorf("name exists in the last hierarchy: got %v, %v, want ErrExist", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) != 1 || left[0] != last {
			t.Errorf("left over: %q, want %q", left, last)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors, want %d as before", after, before)
		}
	})
}

// A jail's descriptors are closed when the jail and all of its jobs have been removed, in any order.
func TestDescriptorsOfJail(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		before := descriptors(t)
		for _, late := range []bool{false, true} {
			j := bareJail(t, i)
			if got, want := descriptors(t)-before, len(s.tree.points()); got != want {
				t.Errorf("a jail has %d descriptors, want %d", got, want)
			}
			g := newJob(t, j, "job", Limits{})
			if !late {
				if err := g.Remove(); err != nil {
					t.Error(err)
				}
			}
			if err := j.Remove(); err != nil {
				t.Fatal(err)
			}
			if _, err := j.Job("another", Limits{}); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("create a job in a removed jail: got %v, want ErrNotExist", err)
			}
			if err := errors.Join(g.Remove(), g.Remove()); err != nil {
				t.Error("remove the job after its jail, and again:", err)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, want %d as before", after, before)
			}
		}
	})
}

// A jail keeps using its directory after a rename, and does not touch a new directory at the old path. A removed
// directory is not created again.
func TestJailRenamed(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		if s.tree.layout == "v2" {
			return // v2 cannot rename groups
		}
		j := bareJail(t, newInstance(t, s))
		dir := s.tree.path(s.tree.v1["pids"], s.tree.top, j.instance.name, "jail")
		if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		g := newJob(t, j, "job", Limits{PIDs: 10})
		b, err := os.ReadFile(dir + "-moved/job/pids.max")
		if err != nil || string(b) != "10\n" {
			t.Errorf("pids.max is %q, %v, want 10", b, err)
		}
		if _, err := os.Lstat(dir + "/job"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("group in the new directory at the old path: Lstat returned %v", err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(unix.Rmdir(dir+"-moved"), unix.Rmdir(dir)); err != nil {
			t.Fatal(err)
		}
		if g, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("create a job in a removed directory: got %v, %v, want ErrNotExist", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	})
}
