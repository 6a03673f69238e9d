package cgroup

import (
	"errors"
	"fmt"
	"iter"
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

// Kill sends SIGKILL to every process of the job, also to stopped ones and to those being forked. It does not wait
// until they have ended; [Job.Remove] does. The error wraps [ErrUnkillable] if, without cgroup.kill, new processes
// appear all the time.
func (g *Job) Kill() error {
	if g.instance.has.kill {
		if err := g.dirs[0].write(killFile, "1"); err != nil {
			return fmt.Errorf("kill cgroup: %w", err)
		}
		return nil
	}
	if err := killFrozen(g.dirs[0].path); err != nil {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	return nil
}

// killFrozen kills the processes of dir and of the groups below it. Frozen processes cannot fork, so a single round
// kills all of them if all were frozen before they were listed.
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

// freeze freezes all processes of a group with the freezer of either version, and reports whether all are frozen. A
// process in an uninterruptible call does not freeze. A process that was killed while frozen by v1 dies when it is
// thawed.
func freeze(dir string) bool {
	file, value, state, want := v2Freezer, "1", eventsFile, "frozen 1\n"
	if _, err := os.Lstat(filepath.Join(dir, v1Freezer)); err == nil {
		file, value, state, want = v1Freezer, "FROZEN", v1Freezer, "FROZEN\n"
	}
	for wait := range backoff(100 * time.Millisecond) {
		// v1 retries only when the state is written again.
		if err := write(filepath.Join(dir, file), value); err != nil {
			return false
		}
		b, err := readFile(filepath.Join(dir, state))
		if err != nil {
			return false
		}
		if strings.Contains(string(b), want) {
			return true
		}
		time.Sleep(wait)
	}
	return false
}

// thaw undoes freeze. Its writes fail if nothing is frozen.
func thaw(dir string) {
	if write(filepath.Join(dir, v1Freezer), "THAWED") != nil {
		_ = write(filepath.Join(dir, v2Freezer), "0")
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
	pids, err := processesIn(dir)
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
	still, err := processesIn(dir)
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

// walk calls f for the groups below dir and then for dir. Groups may vanish meanwhile.
func walk(dir string, f func(dir string) error) error {
	children, err := groupsIn(dir)
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
