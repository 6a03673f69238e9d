package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Jail holds the groups of one jail. It has no limits of its own. It is safe for concurrent use; [Jail.Adopt] and
// [Jail.Remove] are called once.
type Jail struct {
	instance *Instance
	user     *User  // nil: it belongs to nobody
	path     string // of its groups, below the instance's
	owner    int
	jailDirs *heldGroups // the directories that jobs are created in
	end      sync.Once
}

// Jail creates the directories of a jail. owner is the host's user ID of the jail's root, which starts processes
// directly in the groups of its jobs. For that it needs write access to cgroup.procs of the job and of the nearest
// common ancestor (cgroup-v2 document, "Delegation Containment"), so it becomes the owner of these files and of
// nothing else. The error wraps [os.ErrExist] if the instance has a jail of that name.
func (i *Instance) Jail(name string, owner int) (*Jail, error) { return i.jail(nil, name, owner) }

func (i *Instance) jail(u *User, name string, owner int) (*Jail, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	j := &Jail{instance: i, user: u, path: name, owner: owner}
	if u != nil {
		j.path = filepath.Join(u.name, name)
	}
	if made, err := j.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("create cgroup of jail: %w", err), removePaths(made))
	}
	return j, nil
}

// make returns the directories that it has created, also with an error.
func (j *Jail) make() (made []string, err error) {
	var dirs []string
	for _, d := range j.groups() {
		dirs = append(dirs, d.Path)
	}
	if j.instance.tree.layout == "hybrid" {
		dirs = append(dirs, j.unified(initGroup))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return made, err
		}
		made = append(made, dir)
	}
	if j.instance.tree.clone {
		if err := j.chown(groupAt(dirs[0])); err != nil {
			return made, err
		}
	}
	j.jailDirs, err = holdGroups(j.groups())
	return made, err
}

// chown makes the jail's root the owner of the one file that it needs for clone3(2).
func (j *Jail) chown(d group) error { return d.Chown(procsFile, j.owner) }

// groups returns the jail's directories in the hierarchies that jobs use, in the order of Tree.points.
func (j *Jail) groups() []group {
	t := j.instance.tree
	var list []group
	for _, point := range t.points() {
		d := groupAt(t.path(point, t.top, j.instance.name, j.path))
		d.Point = point
		list = append(list, d)
	}
	return list
}

// unified returns the path of a group of the jail in the unified hierarchy.
func (j *Jail) unified(group string) string {
	t := j.instance.tree
	return t.path(t.unified, t.top, j.instance.name, j.path, group)
}

// Path returns the cgroup path to configure for the container in libcontainer: absolute, and relative to the mount
// point of each hierarchy. With v1 controllers it is the jail's init group, which libcontainer creates in every v1
// hierarchy. On v2 it is the jail itself, so libcontainer's cgroup namespace is rooted there and contains the init
// group and all jobs.
func (j *Jail) Path() string {
	path := filepath.Join("/", j.instance.tree.top, j.instance.name, j.path)
	if j.instance.tree.layout == "v2" {
		return filepath.Join(j.instance.tree.base, path)
	}
	return filepath.Join(path, initGroup)
}

// Adopt takes the container over from libcontainer: pid is its first process, started and still without children.
// Call it before the jail's first [Jail.Job].
//
// On v2 it moves that process from the jail to its init group and enables the controllers for the jobs. On a hybrid
// host it moves it into the init group of the unified hierarchy, which libcontainer does not touch. On v1 there is
// nothing to do.
func (j *Jail) Adopt(pid int) error {
	switch j.instance.tree.layout {
	case "v2":
		return j.adoptV2(pid)
	case "hybrid":
		if err := groupAt(j.unified(initGroup)).Join(pid); err != nil {
			return fmt.Errorf("move process %d into the jail's cgroup: %w", pid, err)
		}
	}
	return nil
}

func (j *Jail) adoptV2(pid int) error {
	if err := os.Mkdir(j.unified(initGroup), 0o755); err != nil {
		return fmt.Errorf("create cgroup of the jail's init: %w", err)
	}
	if err := groupAt(j.unified(initGroup)).Join(pid); err != nil {
		return fmt.Errorf("move process %d into the jail's cgroup: %w", pid, err)
	}
	var err error
	// Helper processes with which libcontainer started the container may still be exiting.
	for wait := range backoff(time.Second) {
		err = moveAll(j.unified(""), j.unified(initGroup))
		if err == nil {
			err = j.enable()
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	if err != nil {
		return fmt.Errorf("enable controllers for the jail: %w", err)
	}
	return nil
}

// WithoutContainer is called in place of [Jail.Adopt] for a jail in whose groups no container runs, only jobs. On v2 it enables the
// controllers for them; elsewhere there is nothing to do.
func (j *Jail) WithoutContainer() error {
	if j.instance.tree.layout != "v2" {
		return nil
	}
	if err := j.enable(); err != nil {
		return fmt.Errorf("enable controllers for the jobs of %s: %w", j.path, err)
	}
	return nil
}

// enable enables the controllers for the groups of jobs on v2. No process may be in the jail's own group.
func (j *Jail) enable() error {
	return enableIn(j.unified(""), neededControllers(j.instance.tree.path(j.instance.tree.unified)))
}

// Remove kills the remaining processes of the jail, jobs included, and removes its directories in every hierarchy,
// also those that libcontainer created. The error is or wraps [ErrUnkillable] if a process is still there after two
// seconds; then its groups are kept, and Remove may be called again. Afterwards no job can be created.
func (j *Jail) Remove() error {
	j.end.Do(j.jailDirs.Release)
	return j.instance.tree.clear(j.instance.name, j.path)
}
