package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// An Instance is the part of the tree that belongs to one supervisor. [Tree.Sweep] removes it. It is safe for
// concurrent use.
type Instance struct {
	tree    *Tree
	name    string
	has     kernel
	watcher watcher

	mu      fault.Mutex
	users   map[uint32]*User // guarded by mu
	perUser int64            // guarded by mu: see LimitUsers
}

// Instance creates the directories of an instance in each hierarchy; on v2 it also enables the controllers that jobs
// need on the way down to it. The caller makes sure that no other supervisor uses the name. The error wraps
// [os.ErrExist] if the directories exist already; [Tree.Sweep] removes them.
//
// On v2, if systemd delegated the group that this process runs in, all processes of that group are moved to its child
// "supervisor". If the group was not delegated and its processes block the controllers, the error says so.
func (t *Tree) Instance(name string) (*Instance, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	i := &Instance{tree: t, name: name, users: map[uint32]*User{}}
	var made []string
	for _, point := range t.points() {
		dir := t.path(point, t.top, name)
		if err := makeInstance(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("create cgroup of instance: %w", err), removePaths(made))
		}
		made = append(made, dir)
	}
	if err := i.enable(); err != nil {
		return nil, errors.Join(fmt.Errorf("enable controllers: %w", err), removePaths(made))
	}
	t.makeOtherHomes(name)
	i.has = t.kernel(i.dirIn)
	return i, nil
}

// Close releases the descriptors of the instance. Its groups stay, see [Tree.Sweep].
func (i *Instance) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for uid, u := range i.users {
		if u.event >= 0 {
			_ = unix.Close(u.event)
		}
		delete(i.users, uid)
	}
}

// makeOtherHomes creates the instance's directories in those v1 hierarchies that jobs do not use but libcontainer joins
// anyway: one by one, because the sweep of another instance may remove empty parents meanwhile. Errors are left for
// libcontainer to report.
func (t *Tree) makeOtherHomes(name string) {
	if t.layout == "v2" {
		return
	}
	for _, m := range t.mounts {
		if m.point != t.unified {
			_ = makeInstance(t.path(m.point, t.top, name))
		}
	}
}

// makeInstance creates dir and its parent. It retries because the sweep of another instance may remove the parent
// meanwhile.
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

// dirIn returns the instance's directory in the hierarchy of a controller, "" if that is not mounted.
func (i *Instance) dirIn(controller string) string {
	if point := i.tree.point(controller); point != "" {
		return i.tree.path(point, i.tree.top, i.name)
	}
	return ""
}

// enable enables the controllers for the instance's children. On v2 a group can pass on only those that it has itself.
func (i *Instance) enable() error {
	t := i.tree
	if t.layout != "v2" {
		return nil
	}
	base := t.path(t.unified)
	want := neededControllers(base)
	err := enableIn(base, want)
	if errors.Is(err, unix.EBUSY) {
		if err = t.moveOwnProcesses(base); err == nil {
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

// neededControllers returns the controllers to enable below base: the needed ones, and io if it is available.
func neededControllers(base string) []string {
	var names []string
	for _, c := range needed {
		names = append(names, c.name)
	}
	if slices.Contains(controllersIn(base), "io") {
		names = append(names, "io")
	}
	return names
}

// enableIn enables controllers for the children of dir. They are never disabled again: a sibling may use them.
func enableIn(dir string, controllers []string) error {
	b, err := groupAt(dir).Read(subtreeFile)
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
	return groupAt(dir).Write(subtreeFile, strings.Join(list, " "))
}

// moveOwnProcesses moves the processes of the base to a child of it, because a group that enables controllers for its
// children must not have processes ("no internal processes" in the kernel's cgroup-v2 document). The supervisor may
// move them if the group was delegated to it, or if it is the only process, as in a container.
func (t *Tree) moveOwnProcesses(base string) error {
	pids, err := groupAt(base).Processes()
	if err != nil {
		return err
	}
	if !t.delegated && !slices.Equal(pids, []int{os.Getpid()}) {
		return fmt.Errorf("%s: cannot enable controllers in a group with processes: %w (hint: run corrald as a systemd unit "+
			"with Delegate=yes; in a container, move its processes into a child cgroup first)", base, unix.EBUSY)
	}
	dir := filepath.Join(base, supervisorGroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return moveAll(base, dir)
}

// moveAll moves the processes of one group to another until none is left, in rounds since they may fork meanwhile.
func moveAll(from, to string) error {
	for range 100 {
		pids, err := groupAt(from).Processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := groupAt(to).Join(pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d to %s: %w", pid, to, err)
			}
		}
	}
	return fmt.Errorf("%s: new processes appear as fast as they are moved: %w", from, unix.EBUSY)
}
