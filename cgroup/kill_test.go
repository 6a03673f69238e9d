package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kill kills a job whose first process is r, and removes it.
func kill(t testing.TB, g *Job, r *run) {
	t.Helper()
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	r.killed()
	empty(t, g)
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	for _, dir := range g.dirs {
		if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Lstat returned %v, want ErrNotExist", dir.Path, err)
		}
	}
}

// manyOfStorm is the number of a storm's 100 chains that a test waits for. All of them live at once only if their
// parent starts and reaps them fast enough: a chain ends after 2000 processes, and zombies count against the limit.
const manyOfStorm = 40

func TestKillStorm(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{PIDs: 250, MemoryBytes: 1 << 30})
		r := start(t, g, "storm")
		r.line()
		until(t, "storm", func() bool {
			pids, err := groupAt(g.dirs[0].Path).Processes()
			return err == nil && len(pids) >= manyOfStorm
		})
		kill(t, g, r)
	})
}

func TestKillStopped(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		r := start(t, g, "idle")
		r.line()
		if err := r.cmd.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		until(t, "stopped process", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
			return err == nil && strings.Contains(string(stat), ") T ")
		})
		kill(t, g, r)
	})
}

func TestKillEmpty(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		empty(t, g)
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if err := g.Remove(); err != nil {
			t.Error("second Remove:", err)
		}
	})
}

// Kill thaws a frozen group, so that its processes die.
func TestKillFrozen(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		r := start(t, g, "idle")
		r.line()
		until(t, "frozen group", func() bool { return freeze(g.dirs[0].Path) })
		kill(t, g, r)
	})
}

// The children that a process forks while it is attached end up in all groups.
func TestAttachWhileForking(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{PIDs: 400})
		r := launch(t, "storm", g.Dir())
		if s.tree.clone {
			r.play()
			r.line()
		}
		if err := g.Attach(r.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if !s.tree.clone {
			r.play()
			r.line()
		}
		until(t, "storm in each group", func() bool {
			for _, dir := range g.dirs {
				if pids, err := groupAt(dir.Path).Processes(); err != nil || len(pids) < manyOfStorm {
					return false
				}
			}
			return true
		})
		kill(t, g, r)
	})
}

// Attach leaves a process alone that joined the groups by itself, and moves one that did not.
func TestTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		for _, what := range []string{"joins", "idle"} {
			g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
			files, err := g.Tasks()
			if err != nil || (len(files) > 0) != (s.tree.layout == "hybrid") {
				t.Fatalf("%d files, %v in layout %s", len(files), err, s.tree.layout)
			}
			r := launch(t, what, g.Dir(), files...)
			for _, f := range files {
				f.Close()
			}
			r.play()
			line := r.line()
			pid, err := strconv.Atoi(line)
			if err != nil {
				pid = r.cmd.Process.Pid
			}
			if what == "joins" && len(files) > 0 {
				everyGroupHas(t, g.dirs[1:], pid)
			}
			if err := g.Attach(pid); err != nil {
				t.Fatal(err)
			}
			everyGroupHas(t, g.dirs, pid)
			_ = r.cmd.Process.Kill() // on hosts without CLONE_INTO_CGROUP the parent is outside the job's groups
			kill(t, g, r)
		}
	})
}

// everyGroupHas waits until a process is in all of dirs.
func everyGroupHas(t *testing.T, dirs []group, pid int) {
	t.Helper()
	until(t, "process in each group", func() bool {
		for _, dir := range dirs {
			if pids, err := groupAt(dir.Path).Processes(); err != nil || !slices.Contains(pids, pid) {
				return false
			}
		}
		return true
	})
}

func TestAttachEnded(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		r := launch(t, "idle", g.Dir())
		_ = r.cmd.Process.Kill()
		r.killed()
		if err := g.Attach(r.cmd.Process.Pid); len(g.dirs) > 1 && !errors.Is(err, unix.ESRCH) {
			t.Errorf("got %v, want %v", err, unix.ESRCH)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// Remove fails after its timeout of two seconds if a process still runs.
func TestRemoveBusy(t *testing.T) {
	s := settings(t)[0]
	g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
	r := start(t, g, "idle")
	r.line()
	if err := g.Remove(); !errors.Is(err, ErrUnkillable) {
		t.Errorf("got %v, want %v", err, ErrUnkillable)
	}
	kill(t, g, r)
}
