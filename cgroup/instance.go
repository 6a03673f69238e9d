package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// supervisorGroup is where our own processes go when the group they were started in gets controllers.
const supervisorGroup = "supervisor"

// An Instance is one supervisor's part of the tree. It ends with [Tree.Sweep]. It is safe for concurrent use.
type Instance struct {
	tree    *Tree
	name    string
	has     kernel
	watcher watcher
}

// Instance makes the directories of an instance: in each hierarchy, on v2 with the controllers that jobs need switched
// on down to it. The caller sees to it that no other supervisor has the name. The error wraps [os.ErrExist] if it has
// directories already; [Tree.Sweep] removes those.
//
// On v2, when systemd delegated the group that this process runs in, all processes of that group are moved to its child
// "supervisor". When nobody did and the group's processes are in the way, the error says so.
func (t *Tree) Instance(name string) (*Instance, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	i := &Instance{tree: t, name: name}
	var made []string
	for _, point := range t.points() {
		dir := t.path(point, t.top, name)
		if err := makeInstance(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("make cgroup of instance: %w", err), removeDirs(made))
		}
		made = append(made, dir)
	}
	if err := i.enable(); err != nil {
		return nil, errors.Join(fmt.Errorf("switch controllers on: %w", err), removeDirs(made))
	}
	t.keepHomes(name)
	i.has = t.kernel(i.dirIn)
	return i, nil
}

// keepHomes makes the instance's directories in the hierarchies of version 1 that jobs do not use and libcontainer joins
// nevertheless: one by one, while somebody who sweeps another instance removes what is empty. One that cannot be made is
// libcontainer's affair.
func (t *Tree) keepHomes(name string) {
	if t.layout == "v2" {
		return
	}
	for _, m := range t.mounts {
		if m.point != t.unified {
			_ = makeInstance(t.path(m.point, t.top, name))
		}
	}
}

// makeInstance makes dir and its parent, which somebody who sweeps another instance may be about to remove.
func makeInstance(dir string) error {
	var err error
	for range 10 {
		if err = os.Mkdir(filepath.Dir(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err = os.Mkdir(dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

// dirIn returns the instance's directory in the hierarchy that a controller is in.
func (i *Instance) dirIn(controller string) string {
	if point := i.tree.point(controller); point != "" {
		return i.tree.path(point, i.tree.top, i.name)
	}
	return ""
}

// enable switches the controllers on for the instance's children. On v2 a group can only give what it was given.
func (i *Instance) enable() error {
	t := i.tree
	if t.layout != "v2" {
		return nil
	}
	base := t.path(t.unified)
	want := wanted(base)
	err := enableIn(base, want)
	if errors.Is(err, unix.EBUSY) {
		if err = t.makeRoom(base); err == nil {
			err = enableIn(base, want)
		}
	}
	for _, dir := range []string{filepath.Join(base, t.top), filepath.Join(base, t.top, i.name)} {
		if err == nil {
			err = enableIn(dir, want)
		}
	}
	return err
}

// wanted returns the controllers to switch on below base: those that are needed, and io if it is there.
func wanted(base string) []string {
	var names []string
	for _, c := range needed {
		names = append(names, c.name)
	}
	if slices.Contains(controllersIn(base), "io") {
		names = append(names, "io")
	}
	return names
}

// enableIn switches controllers on for the children of dir. They are not switched off again: a sibling may use them.
func enableIn(dir string, controllers []string) error {
	file := filepath.Join(dir, subtreeFile)
	b, err := readFile(file)
	if err != nil {
		return err
	}
	on := strings.Fields(string(b))
	var list []string
	for _, c := range controllers {
		if !slices.Contains(on, c) {
			list = append(list, "+"+c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return write(file, strings.Join(list, " "))
}

// makeRoom moves the processes of our base to a child of it: with controllers for its children, a group may have no
// process of its own ("no internal processes" in the kernel's cgroup-v2 document). They are ours to move if the group
// was delegated to us, or if we are alone in it, as the only process of a container is.
func (t *Tree) makeRoom(base string) error {
	pids, err := processesIn(base)
	if err != nil {
		return err
	}
	if !t.delegated && !slices.Equal(pids, []int{os.Getpid()}) {
		return fmt.Errorf("%s: processes are in the way of controllers: %w (hint: run corrald as a systemd unit with "+
			"Delegate=yes; in a container, move its processes into a child cgroup first)", base, unix.EBUSY)
	}
	dir := filepath.Join(base, supervisorGroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return moveAll(base, dir)
}

// moveAll moves the processes of one group to another until there are none, which those that fork meanwhile may delay.
func moveAll(from, to string) error {
	for range 100 {
		pids, err := processesIn(from)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := join(to, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d to %s: %w", pid, to, err)
			}
		}
	}
	return fmt.Errorf("%s: new processes appear as fast as they are moved: %w", from, unix.EBUSY)
}
