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

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// bareJail is a jail without a process.
func bareJail(t testing.TB, i *Instance) *Jail {
	t.Helper()
	j, err := i.Jail("jail", 0)
	if err != nil {
		t.Fatal(err)
	}
	if i.tree.layout == "v2" {
		if err := enableIn(j.unified(""), wanted(i.tree.path(i.tree.unified))); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// What the kernel says of a job that was made with limits, and after they were lifted.
func TestLimitsOfNewJob(t *testing.T) {
	const none = "9223372036854771712" // 2^63 less a page
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
				b, err := os.ReadFile(filepath.Join(g.in(controller).path, r.file))
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

// Memory with swap is never to be below memory: both orders are tried where a limit may go up or down.
func TestOrderOfMemory(t *testing.T) {
	const limit, memsw = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	for _, c := range []struct {
		swap, lift bool
		want       []v1Limit
	}{
		{false, false, []v1Limit{{"memory", limit, "8", false}, {"memory", tcpLimit, "2", true}}},
		{true, false, []v1Limit{{"memory", limit, "8", false}, {"memory", memsw, "8", false}, {"memory", tcpLimit, "2", true}}},
		{true, true, []v1Limit{
			{"memory", memsw, "8", true}, {"memory", limit, "8", false}, {"memory", memsw, "8", false}, {"memory", tcpLimit, "2", true},
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

// A job that cannot be made leaves nothing of its own, and all of what was there before.
func TestHalfMade(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		j := bareJail(t, newInstance(t, s))
		before := descriptors(t)
		if g, err := j.Job("job", Limits{PIDs: 1 << 40}); !errors.Is(err, unix.EINVAL) {
			t.Errorf("more processes than there can be: %v, %v", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		last := j.stand.groups[len(j.stand.groups)-1].path + "/job"
		if err := os.Mkdir(last, 0o755); err != nil {
			t.Fatal(err)
		}
		if g, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrExist) {
			t.Errorf("the name is taken in the last hierarchy: %v, %v", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) != 1 || left[0] != last {
			t.Errorf("left: %q, want %q", left, last)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors, before %d", after, before)
		}
	})
}

// A jail's descriptors are closed with it, or with the last job that was not removed before it.
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
				t.Errorf("a job in a jail that was removed: %v", err)
			}
			if err := errors.Join(g.Remove(), g.Remove()); err != nil {
				t.Error("removed after its jail, or again:", err)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, before %d", after, before)
			}
		}
	})
}

// A jail's directory that somebody renames stays the jail's, and what has its path then is left alone; one that
// somebody removes is not made again.
func TestJailMoved(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		if s.tree.layout == "v2" {
			return // it renames no group
		}
		j := bareJail(t, newInstance(t, s))
		dir := s.tree.path(s.tree.v1["pids"], s.tree.top, j.instance.name, "jail")
		if err := errors.Join(os.Rename(dir, dir+"-moved"), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		g := newJob(t, j, "job", Limits{PIDs: 10})
		b, err := os.ReadFile(dir + "-moved/job/pids.max")
		if err != nil || string(b) != "10\n" {
			t.Errorf("the limit is %q, %v", b, err)
		}
		if _, err := os.Lstat(dir + "/job"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a group in another's directory: %v", err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(unix.Rmdir(dir+"-moved"), unix.Rmdir(dir)); err != nil {
			t.Fatal(err)
		}
		if g, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("in a directory that was removed: %v, %v", g, err)
		}
		if left := find(t, s.tree, "job"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}
