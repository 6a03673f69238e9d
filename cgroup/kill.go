package cgroup

import (
	"context"
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

// ErrUnkillable is returned, wrapped, when processes are still there two seconds after they were killed: each hangs in
// a system call that cannot be interrupted. Their group is kept, and no user id of theirs may be used again.
var ErrUnkillable = errors.New("processes do not die")

// patience is how long to wait for processes that were killed.
const patience = 2 * time.Second

// backoff yields times to wait, from 0.1 ms on, until they add up to total.
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

// Kill sends SIGKILL to every process of the job, also to those that are stopped, and to those that are being forked.
// It does not wait until they are gone, [Job.WaitEmpty] does. The error wraps [ErrUnkillable] if, without cgroup.kill,
// there are always new ones.
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

// killFrozen kills the processes of dir and of the groups below it. While they are frozen none can fork, so once all
// were frozen before they were listed, one round gets all of them.
func killFrozen(dir string) error {
	for wait := range backoff(patience) {
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

// freeze stops all processes of a group, in either version's way, and reports whether all have stopped. One in an
// uninterruptible call does not; one of v1 that was frozen and killed dies when it is thawed.
func freeze(dir string) bool {
	file, value, state, want := v2Freezer, "1", eventsFile, "frozen 1\n"
	if _, err := os.Lstat(filepath.Join(dir, v1Freezer)); err == nil {
		file, value, state, want = v1Freezer, "FROZEN", v1Freezer, "FROZEN\n"
	}
	for wait := range backoff(100 * time.Millisecond) {
		// v1 tries again only when it is told again.
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

// thaw undoes freeze. It fails where there is nothing to undo.
func thaw(dir string) {
	if write(filepath.Join(dir, v1Freezer), "THAWED") != nil {
		_ = write(filepath.Join(dir, v2Freezer), "0")
	}
}

// killListed kills the processes of dir and of the groups below it, and returns how many it found.
func killListed(dir string) (int, error) {
	total := 0
	err := walk(dir, func(dir string) error {
		n, err := killMembers(dir)
		total += n
		return err
	})
	return total, err
}

// killAtOnce is how many processes are looked at together by killMembers: each takes a descriptor meanwhile.
const killAtOnce = 256

// killMembers kills the processes of one group through pidfds, and returns how many it found. A process is signaled
// only if the group still lists its pid when the pidfd is open: so the number has not passed to a stranger.
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

// killSome kills those of pids that are still in a group.
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
		} // else it has ended, or is in no PID namespace of ours
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

// walk calls f for the groups below dir and then for dir, which may vanish meanwhile.
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

// WaitEmpty waits until the job has no process; a zombie is none. It returns the context's error if that ends first.
// A job that has not started is empty.
func (g *Job) WaitEmpty(ctx context.Context) error {
	if g.instance.tree.unified != "" {
		return waitEvent(ctx, filepath.Join(g.dirs[0].path, eventsFile))
	}
	// v1 tells nobody, but for release_agent, which is one program for the whole host.
	timer := time.NewTimer(0)
	defer timer.Stop()
	wait := 500 * time.Microsecond
	for {
		pids, err := g.dirs[0].processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		wait = min(2*wait, 10*time.Millisecond)
	}
}

// waitEvent waits until cgroup.events says "populated 0". The kernel signals a change of the file to poll(2), so to the
// runtime's poller, which always takes the file for readable and is woken anew by each change: the goroutine waits
// without a thread. (Closing an inotify descriptor instead waits for SRCU grace periods.)
func waitEvent(ctx context.Context, file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	var failed error
	err = conn.Read(func(fd uintptr) (done bool) {
		buf := make([]byte, 256)
		n, err := unix.Pread(int(fd), buf, 0)
		if err != nil {
			failed = fmt.Errorf("read %s: %w", file, err)
			return true
		}
		return slices.Contains(strings.Split(string(buf[:n]), "\n"), "populated 0")
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return failed
}
