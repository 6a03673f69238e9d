package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// A setting is a way for this machine to be.
type setting struct {
	name string
	tree *Tree
	kill bool // cgroup.kill is used if it is there
}

// settings returns what this machine is, and what it can be taken for by looking away from some of what it has.
func settings(t testing.TB) []setting {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	h, err := thisHost()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := detect(h)
	if err != nil {
		t.Fatal(err)
	}
	// Whoever clears up after supervisors that were killed takes a test's instances for theirs.
	tree.top = fmt.Sprint("corral-test-", os.Getpid())
	list := []setting{{tree.layout, tree, true}, {tree.layout + " without cgroup.kill", tree, false}}
	if tree.layout != "hybrid" {
		return list
	}
	without := *tree
	without.clone = false
	list = append(list, setting{"hybrid with nsdelegate", &without, true})
	lines := slices.DeleteFunc(strings.SplitAfter(h.mountinfo, "\n"), func(line string) bool {
		return strings.Contains(line, " - cgroup2 ")
	})
	h.mountinfo = strings.Join(lines, "")
	v1, err := detect(h)
	if err != nil {
		t.Fatal(err)
	}
	v1.top = tree.top
	return append(list, setting{"v1", v1, true})
}

// everywhere runs a test in each setting.
func everywhere(t *testing.T, f func(t *testing.T, s setting)) {
	for _, s := range settings(t) {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

var serial atomic.Int64

// newInstance makes an instance that the test's end sweeps, and fails the test if that leaves a directory.
func newInstance(t testing.TB, s setting) *Instance {
	t.Helper()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), serial.Add(1))
	t.Cleanup(func() {
		if err := s.tree.Sweep(name); err != nil {
			t.Error(err)
		}
		for _, dir := range find(t, s.tree, name) {
			t.Errorf("left: %s", dir)
		}
	})
	i, err := s.tree.Instance(name)
	if err != nil {
		t.Fatal(err)
	}
	i.has.kill = i.has.kill && s.kill
	return i
}

// newJail makes a jail with a first process, as a supervisor does.
func newJail(t testing.TB, i *Instance) *Jail {
	t.Helper()
	j, err := i.Jail("jail", 0)
	if err != nil {
		t.Fatal(err)
	}
	init := launch(t, "idle", -1)
	playLibcontainer(t, j, init.cmd.Process.Pid)
	if err := j.Adopt(init.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	init.play()
	init.line()
	return j
}

// playLibcontainer puts a process where libcontainer would: to Path in all hierarchies of v1, or in that of v2.
func playLibcontainer(t testing.TB, j *Jail, pid int) {
	t.Helper()
	for _, m := range j.instance.tree.mounts {
		if m.v2 != (j.instance.tree.layout == "v2") {
			continue
		}
		dir := filepath.Join(m.point, j.Path())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(m.controllers, "cpuset") {
			continue // it takes no process before it has CPUs
		}
		if err := join(dir, pid); err != nil {
			t.Fatal(err)
		}
	}
}

func newJob(t testing.TB, j *Jail, name string, l Limits) *Job {
	t.Helper()
	g, err := j.Job(name, l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// find returns the directories of that name below ours, in every hierarchy.
func find(t testing.TB, tree *Tree, name string) []string {
	t.Helper()
	var found []string
	for _, home := range tree.homes() {
		err := walk(home, func(dir string) error {
			if filepath.Base(dir) == name {
				found = append(found, dir)
			}
			return nil
		})
		if err != nil && !gone(err) {
			t.Fatal(err)
		}
	}
	return found
}

// empty waits for the job's end.
func empty(t testing.TB, g *Job) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := g.WaitEmpty(ctx); err != nil {
		t.Fatalf("wait for the job's end: %v", err)
	}
	for _, dir := range g.dirs {
		if pids, err := processesIn(dir.path); err != nil || len(pids) > 0 {
			t.Errorf("%s has processes %v, %v", dir.path, pids, err)
		}
	}
}

// until waits for something that the kernel tells no one of.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	patience := sandboxtest.Slow(30 * time.Second)
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in %v", what, patience)
		}
	}
}

func TestFeatures(t *testing.T) {
	for _, s := range settings(t) {
		i := newInstance(t, s)
		for _, f := range s.tree.Features() {
			if f.Name == "" || f.Seen == "" || f.Without == "" {
				t.Errorf("%+v says too little", f)
			}
			t.Logf("%s: %s: %v", s.name, f.Name, f.Present)
		}
		if names, err := s.tree.Instances(); err != nil || !slices.Contains(names, i.name) {
			t.Errorf("Instances() = %q, %v, want %s in it", names, err, i.name)
		}
	}
}

func TestMadeTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		if _, err := s.tree.Instance(i.name); !errors.Is(err, os.ErrExist) {
			t.Error("an instance was made twice")
		}
		if len(find(t, s.tree, i.name)) < len(s.tree.points()) {
			t.Error("the one that failed removed the other's directories")
		}
		j := newJail(t, i)
		if _, err := i.Jail("jail", 0); !errors.Is(err, os.ErrExist) {
			t.Error("a jail was made twice")
		}
		if dirs := find(t, s.tree, "jail"); len(dirs) < len(s.tree.points()) {
			t.Errorf("the one that failed removed the other's directories, left are %q", dirs)
		}
		newJob(t, j, "job", Limits{})
		if _, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrExist) {
			t.Error("a job was made twice")
		}
		if len(find(t, s.tree, "job")) == 0 {
			t.Error("the one that failed removed the other's directories")
		}
	})
}

func TestSweep(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		var killed, spared []*run
		a, b := newInstance(t, s), newInstance(t, s)
		for _, i := range []*Instance{a, b} {
			g := newJob(t, newJail(t, i), "job", Limits{PIDs: 50})
			r := start(t, g, "idle")
			r.line()
			// And one that was killed between libcontainer's work and ours.
			j, err := i.Jail("half", 0)
			if err != nil {
				t.Fatal(err)
			}
			half := launch(t, "idle", -1)
			playLibcontainer(t, j, half.cmd.Process.Pid)
			if i == a {
				killed = append(killed, r, half)
			} else {
				spared = append(spared, r, half)
			}
		}
		before := find(t, s.tree, b.name)
		if err := s.tree.Sweep(a.name); err != nil {
			t.Fatal(err)
		}
		for _, r := range killed {
			r.killed()
		}
		if left := find(t, s.tree, a.name); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if after := find(t, s.tree, b.name); !slices.Equal(before, after) {
			t.Errorf("the other instance had %q and has %q", before, after)
		}
		for _, r := range spared {
			if err := r.cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("a process of the other instance: %v", err)
			}
		}
		spared[1].play()
		if line := spared[1].line(); line != "ready" {
			t.Errorf("the other instance's process says %q", line)
		}
	})
}

func TestJailRemove(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		j := newJail(t, i)
		r := start(t, newJob(t, j, "job", Limits{}), "idle")
		r.line()
		if err := j.Remove(); err != nil {
			t.Fatal(err)
		}
		r.killed()
		if left := find(t, s.tree, "jail"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}
