package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOutOfMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{MemoryBytes: 128 << 20, PIDs: 100})
		var calls atomic.Int64
		if err := g.WatchOOM(func() {
			calls.Add(1)
			if err := g.Kill(); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		r := start(t, g, "eat")
		r.line()
		r.killed()
		empty(t, g) // the idle children are killed, too
		u, e, err := g.Account()
		if err != nil || !e.OOM || e.OOMKills < 1 {
			t.Errorf("events %+v, %v, want OOM", e, err)
		}
		if err != nil || u.PeakMemory != -1 && (u.PeakMemory < 64<<20 || u.PeakMemory > 129<<20) {
			t.Errorf("usage %+v, %v, want a peak near 128 MiB", u, err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if want := s.tree.layout != "v2"; (calls.Load() > 0) != want {
			t.Errorf("%d calls of the OOM callback, want any: %v", calls.Load(), want)
		}
	})
}

// TestOutOfMemoryAbove: when memory runs out above the jobs, on v1 all of them are notified, and the one that the kernel has killed a process
// of is ended. The result of the other does not say that it ran out of memory.
func TestOutOfMemoryAbove(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		if s.tree.layout == "v2" {
			t.Skip("the kernel kills the group, and nothing is watched")
		}
		j := newJail(t, newInstance(t, s))
		above := groupAt(s.tree.path(s.tree.point("memory"), s.tree.top, j.instance.name, j.path))
		if err := above.Write("memory.limit_in_bytes", strconv.Itoa(128<<20)); err != nil {
			t.Fatal(err)
		}
		victim, other := newJob(t, j, "victim", Limits{MemoryBytes: 1 << 30}), newJob(t, j, "other", Limits{MemoryBytes: 1 << 30})
		if err := victim.WatchOOM(func() {
			if err := victim.Kill(); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := other.WatchOOM(func() { t.Error("a job is ended that the kernel has killed nothing of") }); err != nil {
			t.Fatal(err)
		}
		r := start(t, victim, "eat")
		r.line()
		r.killed()
		empty(t, victim)
		for g, want := range map[*Job]bool{victim: true, other: false} {
			if _, e, err := g.Account(); err != nil || e.OOM != want {
				t.Errorf("%s: events %+v, %v, want OOM %v", g.name, e, err, want)
			}
		}
		if err := errors.Join(victim.Remove(), other.Remove()); err != nil { // Remove waits for callbacks
			t.Error(err)
		}
	})
}

func TestWatchOOMStops(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		j := newJail(t, newInstance(t, s))
		before := runtime.NumGoroutine()
		g := newJob(t, j, "job", Limits{MemoryBytes: 1 << 30})
		if err := g.WatchOOM(func() { t.Error("OOM callback called") }); err != nil {
			t.Fatal(err)
		}
		if err := g.WatchOOM(func() {}); (err != nil) != (s.tree.layout != "v2") {
			t.Errorf("second WatchOOM: %v", err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		until(t, "fewer goroutines", func() bool { return runtime.NumGoroutine() <= before })
	})
}

func TestPIDsLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{PIDs: 40})
		r := start(t, g, "forks")
		if line, want := r.line(), fmt.Sprintf("refused %d", unix.EAGAIN); line != want {
			t.Errorf("the child printed %q, want %q", line, want)
		}
		u, e, err := g.Account()
		if err != nil || e.PIDsMax < 1 || e.OOM {
			t.Errorf("events %+v, %v, want a refused fork", e, err)
		}
		if u.PeakPIDs != -1 && u.PeakPIDs != 40 {
			t.Errorf("usage %+v, want a peak of 40 processes or -1", u)
		}
		kill(t, g, r)
	})
}

// Limits that are set after a process was started in the group apply to it, and a job without Complete can be removed.
func TestBegin(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		j := newJail(t, newInstance(t, s))
		g, err := j.Begin("job", Limits{PIDs: 40})
		if err != nil {
			t.Fatal(err)
		}
		r := launch(t, "forks", g.Dir())
		if err := errors.Join(g.Complete(), g.Attach(r.cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
		r.play()
		if line, want := r.line(), fmt.Sprintf("refused %d", unix.EAGAIN); line != want {
			t.Errorf("the child printed %q, want %q", line, want)
		}
		kill(t, g, r)
		if g, err = j.Begin("other", Limits{}); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if left := find(t, s.tree, "other"); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	})
}

func TestCPULimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{MilliCPUs: 100})
		r := start(t, g, "spin")
		r.line()
		until(t, "throttled periods", func() bool {
			b, err := g.in("cpu").Read("cpu.stat")
			return err == nil && valueOf(b, "nr_throttled") >= 3
		})
		// Without exact accounting the kernel divides CPU time by samples: at first all of it can be the system's.
		until(t, "CPU time of the user", func() bool {
			u, _, err := g.Account()
			return err == nil && u.CPU > 0 && u.User > 0
		})
		kill(t, g, r)
	})
}

func TestStartsInGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		if !s.tree.clone {
			if g.Dir() != -1 {
				t.Errorf("descriptor %d, want none", g.Dir())
			}
			return
		}
		r := launch(t, "idle", g.Dir())
		pids, err := groupAt(g.dirs[0].Path).Processes()
		if err != nil || len(pids) != 1 || pids[0] != r.cmd.Process.Pid {
			t.Errorf("the group has processes %v, %v, want %d", pids, err, r.cmd.Process.Pid)
		}
		kill(t, g, r)
	})
}

func TestJailRootMayStartJobs(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		if s.tree.unified == "" {
			return // the jail's root owns no file
		}
		const owner = 12345
		i := newInstance(t, s)
		j, err := i.Jail("owned", owner)
		if err != nil {
			t.Fatal(err)
		}
		first := launch(t, "idle", -1)
		playLibcontainer(t, j, first.cmd.Process.Pid)
		if err := j.Adopt(first.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		g := newJob(t, j, "job", Limits{})
		for _, dir := range []string{filepath.Dir(g.dirs[0].Path), g.dirs[0].Path} {
			for _, c := range []struct {
				file  string
				owned bool
			}{{"", false}, {killFile, false}, {subtreeFile, false}, {procsFile, s.tree.clone}} {
				var st unix.Stat_t
				if err := unix.Stat(filepath.Join(dir, c.file), &st); err != nil {
					t.Fatal(err)
				}
				if (st.Uid == owner) != c.owned {
					t.Errorf("%s/%s is owned by %d, want %d: %v", dir, c.file, st.Uid, owner, c.owned)
				}
			}
		}
	})
}

func TestUpdate(t *testing.T) {
	// The expected contents of the files, by layout, after each step.
	type want map[string]string
	const none = "9223372036854771712" // 2^63 minus a page
	for _, s := range settings(t)[:1] {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		for _, step := range []struct {
			limits Limits
			v2, v1 want
		}{
			{
				Limits{MemoryBytes: 64 << 20, MilliCPUs: 500, PIDs: 10},
				want{"memory.max": "67108864", "memory.oom.group": "1", "cpu.max": "50000 100000", "pids.max": "10"},
				want{"memory.limit_in_bytes": "67108864", "cpu.cfs_quota_us": "50000", "pids.max": "10"},
			},
			{
				Limits{MemoryBytes: 256 << 20, MilliCPUs: 5, PIDs: 100},
				want{"memory.max": "268435456", "cpu.max": "5000 1000000", "pids.max": "100"},
				want{"memory.limit_in_bytes": "268435456", "cpu.cfs_quota_us": "5000", "cpu.cfs_period_us": "1000000"},
			},
			{
				Limits{MemoryBytes: 32 << 20, MilliCPUs: 2500, PIDs: 5},
				want{"memory.max": "33554432", "cpu.max": "250000 100000", "pids.max": "5"},
				want{"memory.limit_in_bytes": "33554432", "cpu.cfs_quota_us": "250000", "cpu.cfs_period_us": "100000"},
			},
			{
				Limits{},
				want{"memory.max": "max", "cpu.max": "max 100000", "pids.max": "max"},
				want{"memory.limit_in_bytes": none, "cpu.cfs_quota_us": "-1", "pids.max": "max"},
			},
		} {
			if err := g.Update(step.limits); err != nil {
				t.Fatal(err)
			}
			files := step.v1
			if s.tree.layout == "v2" {
				files = step.v2
			}
			const swap = "memory.memsw.limit_in_bytes"
			if s.tree.layout != "v2" && g.instance.has.swap {
				files[swap] = files["memory.limit_in_bytes"]
			}
			for file, text := range files {
				controller, _, _ := strings.Cut(file, ".")
				b, err := os.ReadFile(filepath.Join(g.in(controller).Path, file))
				if got := strings.TrimSpace(string(b)); err != nil || got != text {
					t.Errorf("%+v: %s is %q, %v, want %q", step.limits, file, got, err, text)
				}
			}
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// Two hundred jobs leave no directory, descriptor or goroutine.
func TestJobsLeakNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		j := newJail(t, newInstance(t, s))
		count := func() [3]int {
			fds, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			dirs := 0
			for _, home := range s.tree.homes() {
				_ = walk(home, func(string) error { dirs++; return nil })
			}
			return [3]int{dirs, len(fds), runtime.NumGoroutine()}
		}
		before := count()
		for n := range 200 {
			g := newJob(t, j, fmt.Sprint("job-", n), Limits{MemoryBytes: 64 << 20, MilliCPUs: 500, PIDs: 10})
			if err := g.WatchOOM(func() {}); err != nil {
				t.Fatal(err)
			}
			if err := g.Remove(); err != nil {
				t.Fatal(err)
			}
		}
		var after [3]int
		defer func() { t.Logf("directories, descriptors, goroutines: %v before, %v after", before, after) }()
		// A goroutine may end shortly after its Wait.
		until(t, "return to the counts before", func() bool { after = count(); return after == before })
	})
}
