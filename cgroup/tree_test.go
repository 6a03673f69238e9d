package cgroup

import (
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

	"corral/internal/test/sandboxtest"
)

// A setting is a layout that the tests run in.
type setting struct {
	name string
	tree *Tree
	kill bool // use cgroup.kill if the kernel has it
}

// settings returns this machine's layout, and those that result from ignoring some of its features.
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
	// Below corral, a supervisor would sweep a test's instances as those of killed supervisors.
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

// newInstance creates an instance, sweeps it at the end of the test, and fails the test if a directory is left.
func newInstance(t testing.TB, s setting) *Instance {
	t.Helper()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), serial.Add(1))
	t.Cleanup(func() {
		if err := s.tree.Sweep(name); err != nil {
			t.Error(err)
		}
		for _, dir := range find(t, s.tree, name) {
			t.Errorf("left over: %s", dir)
		}
	})
	i, err := s.tree.Instance(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	i.has.kill = i.has.kill && s.kill
	return i
}

// newJail creates a jail with a first process, as a supervisor does.
func newJail(t testing.TB, i *Instance) *Jail {
	t.Helper()
	j, err := i.Jail("jail", 0)
	if err != nil {
		t.Fatal(err)
	}
	return started(t, j)
}

// started starts a jail's first process.
func started(t testing.TB, j *Jail) *Jail {
	t.Helper()
	init := launch(t, "idle", -1)
	playLibcontainer(t, j, init.cmd.Process.Pid)
	if err := j.Adopt(init.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	init.play()
	init.line()
	return j
}

// playLibcontainer moves a process as libcontainer does: to Path in all v1 hierarchies, or in that of v2.
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
			continue // a new cpuset group accepts no process until it has CPUs
		}
		if err := groupAt(dir).Join(pid); err != nil {
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

// find returns the directories called name below the tree's own, in every hierarchy.
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

// empty waits until the job has no process, and fails the test unless all its groups are empty.
func empty(t testing.TB, g *Job) {
	t.Helper()
	if err := waitEmpty(g, sandboxtest.Slow(30*time.Second)); err != nil {
		t.Fatalf("wait for the end of the job: %v", err)
	}
	for _, dir := range g.dirs {
		if pids, err := groupAt(dir.Path).Processes(); err != nil || len(pids) > 0 {
			t.Errorf("%s has processes %v, %v", dir.Path, pids, err)
		}
	}
}

// waitEmpty polls until the job has no process; zombies do not count.
func waitEmpty(g *Job, timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; time.Sleep(100 * time.Microsecond) {
		pids, err := g.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v after %v", pids, timeout)
		}
	}
}

// until polls for a condition that the kernel has no event for.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	timeout := sandboxtest.Slow(30 * time.Second)
	for end := time.Now().Add(timeout); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in %v", what, timeout)
		}
	}
}

func TestFeatures(t *testing.T) {
	for _, s := range settings(t) {
		i := newInstance(t, s)
		for _, f := range s.tree.Features() {
			if f.Name == "" || f.Seen == "" || f.Without == "" {
				t.Errorf("%+v has an empty field", f)
			}
			t.Logf("%s: %s: %v", s.name, f.Name, f.Present)
		}
		if names, err := s.tree.Instances(); err != nil || !slices.Contains(names, i.name) {
			t.Errorf("Instances() = %q, %v, want %s in it", names, err, i.name)
		}
	}
}

func TestRefusesDuplicateNames(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		if _, err := s.tree.Instance(i.name); !errors.Is(err, os.ErrExist) {
			t.Error("an instance was created twice")
		}
		if len(find(t, s.tree, i.name)) < len(s.tree.points()) {
			t.Error("the failed call removed the directories of the first instance")
		}
		j := newJail(t, i)
		if _, err := i.Jail("jail", 0); !errors.Is(err, os.ErrExist) {
			t.Error("a jail was created twice")
		}
		if dirs := find(t, s.tree, "jail"); len(dirs) < len(s.tree.points()) {
			t.Errorf("the failed call removed directories of the first jail, %q are left", dirs)
		}
		newJob(t, j, "job", Limits{})
		if _, err := j.Job("job", Limits{}); !errors.Is(err, os.ErrExist) {
			t.Error("a job was created twice")
		}
		if len(find(t, s.tree, "job")) == 0 {
			t.Error("the failed call removed the directories of the first job")
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
			// And a jail whose supervisor was killed between libcontainer's start and Adopt.
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
			t.Errorf("left over: %q", left)
		}
		if after := find(t, s.tree, b.name); !slices.Equal(before, after) {
			t.Errorf("the other instance had groups %q and now has %q", before, after)
		}
		for _, r := range spared {
			if err := r.cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("signal a process of the other instance: %v", err)
			}
		}
		spared[1].play()
		if line := spared[1].line(); line != "ready" {
			t.Errorf("the other instance's process printed %q, want ready", line)
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
			t.Errorf("left over: %q", left)
		}
	})
}
