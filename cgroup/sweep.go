package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep removes an instance, its own or that of a supervisor that was killed: it kills every process in its groups,
// in every mounted hierarchy, waits until they have ended, and removes the directories, also those that libcontainer
// created. A missing instance is not an error. The caller makes sure that the instance is not in use.
//
// The error is or wraps [ErrUnkillable] if a process still exists after two seconds; then its groups are kept.
func (t *Tree) Sweep(instance string) error {
	if err := checkName(instance); err != nil {
		return err
	}
	if err := t.clear(instance); err != nil {
		return err
	}
	for _, home := range t.homes() {
		// Removes the parent with its last instance; fails while there is another.
		_ = unix.Rmdir(home)
	}
	return nil
}

// clear kills the processes of a group below corral and of its descendants, and removes the directories, in every
// hierarchy.
func (t *Tree) clear(group ...string) error {
	var dirs []string
	for _, home := range t.homes() {
		dir := filepath.Join(append([]string{home}, group...)...)
		if _, err := os.Lstat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if err := killEverywhere(dirs); err != nil {
		return fmt.Errorf("clear cgroup: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeTree(dir))
	}
	return errors.Join(errs...)
}

// killEverywhere kills the processes in dirs, one group's directories in several hierarchies, in rounds until it
// finds none. A process may be in only some of them, such as a jail's first process before it is adopted.
func killEverywhere(dirs []string) error {
	for wait := range backoff(killTimeout) {
		frozen := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !canFreeze(dir) })
		for _, dir := range dirs {
			// Kills the whole subtree at once where the file exists.
			_ = write(filepath.Join(dir, killFile), "1")
		}
		total := 0
		var errs []error
		for _, dir := range frozen {
			freeze(dir)
		}
		for _, dir := range dirs {
			n, err := killListed(dir)
			total += n
			errs = append(errs, err)
		}
		for _, dir := range frozen {
			thaw(dir)
		}
		if err := errors.Join(errs...); err != nil || total == 0 {
			return err
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("%v: %w", dirs, ErrUnkillable)
}

// canFreeze reports whether dir must be frozen around a kill: a group of the v1 freezer, whose processes die only
// when thawed, or one of a unified hierarchy without cgroup.kill.
func canFreeze(dir string) bool {
	there := func(file string) bool {
		_, err := os.Lstat(filepath.Join(dir, file))
		return err == nil
	}
	return there(v1Freezer) || there(v2Freezer) && !there(killFile)
}

// removeTree removes the directories of a group and of its descendants.
func removeTree(dir string) error {
	return walk(dir, func(dir string) error { return removeDirs([]string{dir}) })
}

// removeDirs is removeGroups for directories given by their paths.
func removeDirs(dirs []string) error {
	var list []group
	for _, dir := range dirs {
		list = append(list, groupAt(dir))
	}
	return removeGroups(list)
}

// removeGroups removes the directories of groups, starting with the last. A group may stay busy for a moment after
// its last process was waited for, so busy ones are retried for up to two seconds. A missing group is not an error.
func removeGroups(groups []group) error {
	left := slices.Clone(groups)
	slices.Reverse(left)
	var errs []error
	for wait := range backoff(killTimeout) {
		left = slices.DeleteFunc(left, func(d group) bool {
			err := d.remove()
			if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove %s: %w", d.path, err))
			}
			return !errors.Is(err, unix.EBUSY)
		})
		if len(left) == 0 {
			break
		}
		time.Sleep(wait)
	}
	for _, d := range left {
		err := error(unix.EBUSY)
		if pids, _ := d.processes(); len(pids) > 0 {
			err = fmt.Errorf("%w: %v", ErrUnkillable, pids)
		}
		errs = append(errs, fmt.Errorf("remove %s: %w", d.path, err))
	}
	return errors.Join(errs...)
}
