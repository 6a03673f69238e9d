package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// initGroup holds a jail's first process, beside the jobs that it starts.
const initGroup = "init"

// A Jail is the groups of one jail. It has no limits of its own. It is safe for concurrent use; [Jail.Adopt] and
// [Jail.Remove] are called once.
type Jail struct {
	instance *Instance
	name     string
	owner    int
	stand    *stand // where its jobs are made
	end      sync.Once
}

// Jail makes the directories of a jail. owner is the host's user id of the jail's root, which is to start processes
// straight in the groups of its jobs: for that it must be allowed to write cgroup.procs of the job and of the nearest
// group that holds both (cgroup-v2 document, "Delegation Containment"), so these files, and nothing else, are its own.
// The error wraps [os.ErrExist] if the instance has a jail of that name.
func (i *Instance) Jail(name string, owner int) (*Jail, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	j := &Jail{instance: i, name: name, owner: owner}
	if made, err := j.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup of jail: %w", err), removeDirs(made))
	}
	return j, nil
}

// make returns the directories that it has made.
func (j *Jail) make() (made []string, err error) {
	var dirs []string
	for _, d := range j.groups() {
		dirs = append(dirs, d.path)
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
	j.stand, err = newStand(j.groups())
	return made, err
}

// chown gives the jail's root the one file that it needs for clone3(2).
func (j *Jail) chown(d group) error { return d.chown(procsFile, j.owner) }

// groups returns the jail's directories in the hierarchies that jobs use, in the order of Tree.points.
func (j *Jail) groups() []group {
	t := j.instance.tree
	var list []group
	for _, point := range t.points() {
		d := groupAt(t.path(point, t.top, j.instance.name, j.name))
		d.point = point
		list = append(list, d)
	}
	return list
}

// unified returns a group of the jail in the unified hierarchy.
func (j *Jail) unified(group string) string {
	t := j.instance.tree
	return t.path(t.unified, t.top, j.instance.name, j.name, group)
}

// Path is what libcontainer gets as the cgroup path of the container: absolute, and relative to where each hierarchy is
// mounted. With v1 controllers it is the jail's init group, which libcontainer makes in every hierarchy of v1. On v2 it
// is the jail itself: libcontainer's cgroup namespace is then rooted there, with the init and all jobs in it.
func (j *Jail) Path() string {
	path := filepath.Join("/", j.instance.tree.top, j.instance.name, j.name)
	if j.instance.tree.layout == "v2" {
		return filepath.Join(j.instance.tree.base, path)
	}
	return filepath.Join(path, initGroup)
}

// Adopt takes the container over from libcontainer: pid is its first process, which has been started and has no
// children yet. It must come before the jail's first [Jail.Job].
//
// On v2 it moves that process from the jail to its init group and switches the controllers on for the jobs. On a hybrid
// host it puts it into the init group of the unified hierarchy, which libcontainer leaves alone. On v1 there is nothing
// to do.
func (j *Jail) Adopt(pid int) error {
	switch j.instance.tree.layout {
	case "v2":
		return j.adoptV2(pid)
	case "hybrid":
		if err := join(j.unified(initGroup), pid); err != nil {
			return fmt.Errorf("put process %d into the jail's cgroup: %w", pid, err)
		}
	}
	return nil
}

func (j *Jail) adoptV2(pid int) error {
	if err := os.Mkdir(j.unified(initGroup), 0o755); err != nil {
		return fmt.Errorf("make cgroup of the jail's init: %w", err)
	}
	if err := join(j.unified(initGroup), pid); err != nil {
		return fmt.Errorf("put process %d into the jail's cgroup: %w", pid, err)
	}
	base := j.instance.tree.path(j.instance.tree.unified)
	var err error
	// What helped libcontainer to start the container may still be on its way out.
	for wait := range backoff(time.Second) {
		err = moveAll(j.unified(""), j.unified(initGroup))
		if err == nil {
			err = enableIn(j.unified(""), wanted(base))
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	if err != nil {
		return fmt.Errorf("switch controllers on for the jail: %w", err)
	}
	return nil
}

// Reclaim has the kernel write back and drop what is cached for the jail's files. A memory cgroup that was removed exists
// until all that it was charged for is gone, and after a job that is mostly cached files. What processes of the jail use is
// dropped too, as far as that can be; so it is called when no job runs. It may take seconds. Kernels before 5.19 do nothing on
// v2.
func (j *Jail) Reclaim() error {
	if !j.stand.hold() {
		return nil
	}
	defer j.stand.release()
	dir := j.instance.tree.path(j.instance.tree.point("memory"), j.instance.tree.top, j.instance.name, j.name)
	file, value := "memory.force_empty", "0"
	if j.instance.tree.layout == "v2" {
		b, err := readFile(filepath.Join(dir, "memory.current"))
		if err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		file, value = "memory.reclaim", strings.TrimSpace(string(b))
	}
	err := write(filepath.Join(dir, file), value)
	for _, some := range []error{unix.EAGAIN, unix.EBUSY, unix.ENOENT} { // the rest is in use
		if errors.Is(err, some) {
			return nil
		}
	}
	return err
}

// Remove kills what is left of the jail, jobs included, and removes its directories in every hierarchy, those that
// libcontainer made too. The error is or wraps [ErrUnkillable] if a process is still there after two seconds; then what
// it is in is kept, and Remove may be called again. No job is made any more.
func (j *Jail) Remove() error {
	j.end.Do(j.stand.release)
	return j.instance.tree.clear(j.instance.name, j.name)
}
