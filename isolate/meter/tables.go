package meter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxDescriptors bounds the descriptors of a job that are read. That many files take a tenth of a second, that many sockets a third.
const maxDescriptors = 1 << 16

// tablesPatience is how long reading a job's descriptor tables may take before the job is ended. kcmp(2) and /proc/PID/io wait for a
// process that is in execve(2), which can wait for another one that waits for a user's file system. They return once it is killed.
const tablesPatience = 2 * time.Second

// attachedTasks is how many tasks can be in a job's cgroup beyond pids.max, which limits forks but not attaching.
const attachedTasks = 16

var (
	errTooManyTasks       = errors.New("more tasks than the job's pids limit")
	errTooManyDescriptors = errors.New("more descriptors than the maximum that is read")
)

// A Group is the cgroup of a job: *cgroup.Job, or a fake in tests.
type Group interface {
	// Freeze stops all processes until thaw is called; frozen is false if the host cannot.
	Freeze() (thaw func(), frozen bool)
	// PIDs returns the processes of the group.
	PIDs() ([]int, error)
}

// A tableWalk visits the descriptor tables of a job's tasks. Threads of one process can have different tables (clone(2) without
// CLONE_FILES, close_range(2) with CLOSE_RANGE_UNSHARE). /proc/PID/fd is the table of the first thread, and is empty if that thread
// has ended while others run.
type tableWalk struct {
	visit       func(task string, names []string) error
	tasks, left int   // tasks and descriptors that may still be read
	visited     []int // one task of each table, in the order that kcmp(2) defines
	compare     func(a, b int) (int, error)
	ended       func(task int) bool
}

// walkTables calls visit once for each descriptor table of the processes' tasks, with the directory of one of its tasks in /proc and
// the names of its descriptors. It fails if there are more than maxTasks tasks or maxDescriptors descriptors, or if a task that has
// not ended cannot be read.
func walkTables(pids []int, maxTasks int64, visit func(task string, names []string) error) error {
	w := tableWalk{visit: visit, tasks: int(maxTasks) + attachedTasks, left: maxDescriptors, compare: compareTables, ended: taskEnded}
	return w.walk(pids)
}

func (w *tableWalk) walk(pids []int) error {
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/task", pid)
		tasks, err := w.list(dir, pid, w.tasks)
		if err != nil {
			return err
		}
		if w.tasks -= len(tasks); w.tasks < 0 {
			return errTooManyTasks
		}
		for _, name := range tasks {
			task, err := strconv.Atoi(name)
			if err != nil {
				return err
			}
			if err := w.read(dir+"/"+name, task); err != nil {
				return err
			}
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
	names, err := w.list(dir+"/fd", task, w.left)
	if err != nil {
		return err
	}
	if w.left -= max(len(names), 1); w.left < 0 { // an empty table takes time, too
		return errTooManyDescriptors
	}
	if at >= 0 {
		w.visited = slices.Insert(w.visited, at, task)
	}
	return w.visit(dir, names)
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

// list returns the names in a task's directory, at most one more than limit, and none if the task has ended.
func (w *tableWalk) list(dir string, task, limit int) ([]string, error) {
	f, err := os.Open(dir)
	if err == nil {
		var names []string
		names, err = f.Readdirnames(limit + 1)
		f.Close()
		if err == nil || errors.Is(err, io.EOF) {
			return names, nil
		}
	}
	if w.ended(task) {
		return nil, nil
	}
	return nil, err
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
