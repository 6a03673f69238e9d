package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnkillable is returned, wrapped, when processes still exist two seconds after they were killed: each hangs in an
// uninterruptible system call. Their group is kept, and their user IDs must not be used again.
var ErrUnkillable = errors.New("processes do not die")

// killTimeout is the timeout of the wait for killed processes.
const killTimeout = 2 * time.Second

// killFrozen kills the processes of dir and of the groups below it. Frozen processes cannot fork, so a single round
// kills all of them if all were frozen before they were listed. The error wraps [ErrUnkillable] if, for two seconds, new
// processes appear faster than they are killed.
func killFrozen(dir string) error {
	for wait := range backoff(killTimeout) {
		frozen := freeze(dir)
		n, err := killListed(dir)
		thaw(dir)
		if err != nil || n == 0 || frozen {
			return err
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("%s: %w", dir, ErrUnkillable)
}

// A freezer is how the processes of a group are frozen: freeze is written into file, and state then contains frozen.
type freezer struct{ file, freeze, state, frozen string }

// freezerOf returns the freezer of either version that a group has.
func freezerOf(dir string) freezer {
	if _, err := os.Lstat(filepath.Join(dir, v1Freezer)); err == nil {
		return freezer{v1Freezer, "FROZEN", v1Freezer, "FROZEN\n"}
	}
	return freezer{v2Freezer, "1", eventsFile, "frozen 1\n"}
}

// holds reports whether all processes of a group are frozen.
func (f freezer) holds(dir string) bool {
	b, err := groupAt(dir).Read(f.state)
	return err == nil && strings.Contains(string(b), f.frozen)
}

// freeze freezes all processes of a group with the freezer of either version, and reports whether all are frozen. A
// process in an uninterruptible call does not freeze. A process that was killed while frozen by v1 dies when it is
// thawed.
func freeze(dir string) bool {
	f := freezerOf(dir)
	for wait := range backoff(100 * time.Millisecond) {
		// v1 retries only when the state is written again.
		if err := groupAt(dir).Write(f.file, f.freeze); err != nil {
			return false
		}
		if f.holds(dir) {
			return true
		}
		time.Sleep(wait)
	}
	return false
}

// thaw undoes freeze. Its writes fail if nothing is frozen.
func thaw(dir string) {
	if groupAt(dir).Write(v1Freezer, "THAWED") != nil {
		_ = groupAt(dir).Write(v2Freezer, "0")
	}
}

// killListed kills the processes of dir and of the groups below it, and returns the number that it found.
func killListed(dir string) (int, error) {
	total := 0
	err := walk(dir, func(dir string) error {
		n, err := killMembers(dir)
		total += n
		return err
	})
	return total, err
}

// killAtOnce limits the processes that killMembers handles together, each of which takes a descriptor meanwhile.
const killAtOnce = 256

// killMembers kills the processes of one group through pidfds, and returns the number that it found. A process is
// signaled only if the group still lists its PID once the pidfd is open, so a reused PID is never signaled.
func killMembers(dir string) (int, error) {
	pids, err := groupAt(dir).Processes()
	if err != nil {
		return 0, ignoreGone(err)
	}
	for some := range slices.Chunk(pids, killAtOnce) {
		if err := killSome(dir, some); err != nil {
			return 0, ignoreGone(err)
		}
	}
	return len(pids), nil
}

// killSome kills those of pids that are still in the group after their pidfds were opened.
func killSome(dir string, pids []int) error {
	open := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			open[pid] = fd
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			return fmt.Errorf("open process %d: %w", pid, err)
		} // else it has ended, or is outside this PID namespace
	}
	still, err := groupAt(dir).Processes()
	if err != nil {
		return err
	}
	for _, pid := range still {
		fd, ok := open[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// killEverywhere kills the processes in dirs, one group's directories in several hierarchies, in rounds until it
// finds none. A process may be in only some of them, such as a jail's first process before it is adopted.
// The error wraps [ErrUnkillable] if processes are left after two seconds.
func killEverywhere(dirs []string) error {
	for wait := range backoff(killTimeout) {
		frozen := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !canFreeze(dir) })
		for _, dir := range dirs {
			// Kills the whole subtree at once where the file exists.
			_ = groupAt(dir).Write(killFile, "1")
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
