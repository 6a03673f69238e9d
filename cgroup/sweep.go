package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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

// clear kills the processes of the group with these names below corral and of its descendants, and removes the directories, in every
// hierarchy.
func (t *Tree) clear(names ...string) error {
	var dirs []string
	for _, home := range t.homes() {
		dir := filepath.Join(append([]string{home}, names...)...)
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
