package cgroup

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// removeTree removes the directories of a group and of its descendants, as removeGroups does.
func removeTree(dir string) error {
	return walk(dir, func(dir string) error { return removePaths([]string{dir}) })
}

// removePaths is removeGroups for directories given by their paths.
func removePaths(dirs []string) error {
	var list []group
	for _, dir := range dirs {
		list = append(list, groupAt(dir))
	}
	return removeGroups(list)
}

// removeGroups removes the directories of groups, starting with the last. A group may stay busy for a moment after its last
// process was waited for, so busy ones are retried for up to two seconds. A missing group is not an error. The error
// wraps [ErrUnkillable] if a group still has processes then, and [unix.EBUSY] if it is busy without.
func removeGroups(groups []group) error {
	left := slices.Clone(groups)
	slices.Reverse(left)
	var errs []error
	for wait := range backoff(killTimeout) {
		left = slices.DeleteFunc(left, func(d group) bool {
			err := d.rmdir()
			if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove %s: %w", d.Path, err))
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
		if pids, _ := d.Processes(); len(pids) > 0 {
			err = fmt.Errorf("%w: %v", ErrUnkillable, pids)
		}
		errs = append(errs, fmt.Errorf("remove %s: %w", d.Path, err))
	}
	return errors.Join(errs...)
}

// walk calls f for the groups below dir and then for dir. Groups may vanish meanwhile.
func walk(dir string, f func(dir string) error) error {
	children, err := childrenOf(dir)
	if err != nil {
		return err
	}
	for _, name := range children {
		if err := walk(filepath.Join(dir, name), f); err != nil {
			return err
		}
	}
	return f(dir)
}

// childrenOf returns the names of a group's children. A missing group has none.
func childrenOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// backoff yields increasing times to wait, starting at 0.1 ms, until they add up to total.
func backoff(total time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		wait := 100 * time.Microsecond
		for sum := time.Duration(0); sum < total; sum += wait {
			if !yield(wait) {
				return
			}
			wait = min(2*wait, 20*time.Millisecond)
		}
	}
}
