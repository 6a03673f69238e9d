package meter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A tableWalk visits the descriptor tables of a job's tasks. Threads of one process can have different tables (clone(2) without
// CLONE_FILES, close_range(2) with CLOSE_RANGE_UNSHARE). /proc/PID/fd is the table of the first thread, and is empty if that thread
// has ended while others run.
type tableWalk struct {
	visit   func(task, name string) error
	visited []int // one task of each table, in the order that kcmp(2) defines
	compare func(a, b int) (int, error)
	ended   func(task int) bool
}

// walkTables calls visit for each descriptor in each descriptor table of the processes' tasks, with the directory of one of the tasks in
// /proc and the descriptor's name. The processes may run: descriptors that are opened, closed or passed on meanwhile are visited or not.
// It fails with the first error of visit, and if a task that has not ended cannot be read.
func walkTables(pids []int, visit func(task, name string) error) error {
	w := tableWalk{visit: visit, compare: compareTables, ended: taskEnded}
	return w.walk(pids)
}

func (w *tableWalk) walk(pids []int) error {
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		err := w.list(dir, pid, func(name string) error {
			task, err := strconv.Atoi(name)
			if err != nil {
				return err
			}
			return w.read(dir+"/"+name, task)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// read visits the table of a task, unless an earlier task has the same table. All comparisons with this task come after the visit: if it
// ends while it is read, the next task with the same table compares as different, and is read itself.
func (w *tableWalk) read(dir string, task int) error {
	at, isNew := w.find(task)
	if !isNew {
		return nil
	}
	if at >= 0 {
		w.visited = slices.Insert(w.visited, at, task)
	}
	return w.list(dir+"/fd", task, func(name string) error { return w.visit(dir, name) })
}

// find returns the index in visited for a task with a new table, or -1 if it cannot be compared. A table that cannot be compared counts
// as new, so on a kernel without kcmp(2) every task's does. Comparing the contents in /proc instead would miss read locks, which look
// the same in two tables of one process.
func (w *tableWalk) find(task int) (at int, isNew bool) {
	low, high := 0, len(w.visited)
	for low < high {
		middle := (low + high) / 2
		order, err := w.compare(w.visited[middle], task)
		switch {
		case errors.Is(err, unix.ESRCH) && w.ended(w.visited[middle]):
			w.visited = slices.Delete(w.visited, middle, middle+1)
			high--
		case err != nil:
			return -1, true
		case order == 0:
			return 0, false
		case order < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return low, true
}

// list calls do for each name in a task's directory. A task that has ended has none.
func (w *tableWalk) list(dir string, task int, do func(name string) error) error {
	const atOnce = 1024 // a table can have millions
	f, err := os.Open(dir)
	if err != nil {
		return w.unlessEnded(task, err)
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(atOnce)
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return w.unlessEnded(task, err)
		}
	}
}

func (w *tableWalk) unlessEnded(task int, err error) error {
	if w.ended(task) {
		return nil
	}
	return err
}

// taskEnded reports whether no process or thread has this id. A missing directory in /proc does not prove that: the mount option
// hidepid hides live tasks.
func taskEnded(task int) bool { return unix.Kill(task, 0) == unix.ESRCH }

// compareTables compares the descriptor tables of two tasks in the order of kcmp(2), which is fixed until the host restarts.
func compareTables(a, b int) (int, error) {
	const kcmpFiles = 2
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case order == 0:
		return 0, nil
	case order == 1:
		return -1, nil
	}
	return 1, nil
}

// statDescriptor returns what statx(2) reports from memory of the file that a path such as /proc/PID/fd/3 leads to; ok is false for one
// that was closed meanwhile, or whose file system does not report it from memory. No file system is asked, because a process outside
// the jail may have passed on a descriptor of one of its own. It fails if the supervisor lacks the permission to look.
func statDescriptor(path string, mask int) (st unix.Statx_t, ok bool, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, mask, &st)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return st, false, err
	}
	return st, err == nil, nil
}

// goneMeanwhile reports whether err means that a descriptor was closed, or its task ended, after it was listed.
func goneMeanwhile(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
}
