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

// Sweep ends an instance, one that lived or one whose supervisor was killed: it kills every process in its groups, in
// every hierarchy that is mounted, waits until they are gone, and removes the directories, also those that libcontainer
// made. An instance that is not there is no error. The caller sees to it that the instance is not in use.
//
// The error is or wraps [ErrUnkillable] if a process is still there after two seconds; then what it is in is kept.
func (t *Tree) Sweep(instance string) error {
	if err := checkName(instance); err != nil {
		return err
	}
	if err := t.clear(instance); err != nil {
		return err
	}
	for _, home := range t.homes() {
		// The last one out. It fails while there is another instance.
		_ = unix.Rmdir(home)
	}
	return nil
}

// clear kills and removes a group below corral, with all below it, in every hierarchy.
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

// killEverywhere kills the processes in dirs, one group's directories in several hierarchies, in rounds until none is
// found. A process may be in some of them only: a jail's first one until it is adopted.
func killEverywhere(dirs []string) error {
	for wait := range backoff(patience) {
		frozen := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !canFreeze(dir) })
		for _, dir := range dirs {
			// The whole tree at once, where there is the file.
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

// canFreeze reports whether dir is a group of v1's freezer, whose processes die only when they are thawed, or one of a
// unified hierarchy that has no cgroup.kill.
func canFreeze(dir string) bool {
	there := func(file string) bool {
		_, err := os.Lstat(filepath.Join(dir, file))
		return err == nil
	}
	return there(v1Freezer) || there(v2Freezer) && !there(killFile)
}

// removeTree removes the directories of a group and of those below it.
func removeTree(dir string) error {
	return walk(dir, func(dir string) error { return removeDirs([]string{dir}) })
}

// removeDirs removes directories of groups, given by their paths, as removeGroups does.
func removeDirs(dirs []string) error {
	var list []group
	for _, dir := range dirs {
		list = append(list, groupAt(dir))
	}
	return removeGroups(list)
}

// removeGroups removes directories of groups, one each, the last first. A group may be busy for a moment after its last
// process was waited for, so they are tried again, two seconds at most. One that is gone is no error.
func removeGroups(groups []group) error {
	left := slices.Clone(groups)
	slices.Reverse(left)
	var errs []error
	for wait := range backoff(patience) {
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
