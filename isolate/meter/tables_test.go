package meter

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// tablesOf returns the names of descriptors in each table of processes.
func tablesOf(t *testing.T, pids ...int) (tables [][]string) {
	t.Helper()
	last := ""
	err := walkTables(pids, func(task, name string) error {
		if task != last {
			tables, last = append(tables, nil), task
		}
		tables[len(tables)-1] = append(tables[len(tables)-1], name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// startThreads starts threads of this process, which share its table until the test ends.
func startThreads(t testing.TB, n int) {
	stop, ready := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for range n {
		go sandboxtest.OnThread(func() {
			ready <- struct{}{}
			<-stop
		})
		<-ready
	}
}

// TestWalkTables: threads that share a table are visited once for it, and a thread with its own is visited, too.
func TestWalkTables(t *testing.T) {
	if _, err := compareTables(os.Getpid(), os.Getpid()); err != nil {
		t.Skip("kcmp: ", err)
	}
	startThreads(t, 50)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	if tables := tablesOf(t, os.Getpid(), os.Getpid()); len(tables) != 1 {
		t.Errorf("%d tables of threads that share one", len(tables))
	}
	var own string
	go sandboxtest.OnThread(func() {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			t.Error(err)
		}
		fd, err := unix.Dup(0)
		if err == nil {
			defer unix.Close(fd)
			own = strconv.Itoa(fd + 500)
			err = unix.Dup3(fd, fd+500, unix.O_CLOEXEC)
		}
		if err != nil {
			t.Error(err)
		}
		ready <- struct{}{}
		<-stop
	})
	<-ready
	tables := tablesOf(t, os.Getpid())
	if len(tables) != 2 || slices.Contains(tables[0], own) || !slices.Contains(tables[1], own) {
		t.Errorf("%d tables, want that with descriptor %s last", len(tables), own)
	}
}

// TestWalkTablesUncompared: without kcmp(2) each task counts for itself.
func TestWalkTablesUncompared(t *testing.T) {
	tasks := map[string]bool{}
	w := tableWalk{
		ended:   taskEnded,
		compare: func(int, int) (int, error) { return 0, unix.ENOSYS },
		visit:   func(task, _ string) error { tasks[task] = true; return nil },
	}
	startThreads(t, 5)
	if err := w.walk([]int{os.Getpid()}); err != nil || len(tasks) < 5 {
		t.Errorf("%d visits of 5 threads and others: %v", len(tasks), err)
	}
}

// TestWalkTablesLarge: a table is read to its end, however many descriptors it has.
func TestWalkTablesLarge(t *testing.T) {
	const many = 3000 // more than are listed at once
	for range many {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
	if tables := tablesOf(t, os.Getpid()); len(tables) != 1 || len(tables[0]) < many {
		t.Errorf("%d tables, want one of more than %d descriptors", len(tables), many)
	}
}

// TestWalkTablesOrder: each table is visited once in whatever order tasks come, and those that end meanwhile are left out.
func TestWalkTablesOrder(t *testing.T) {
	table := map[int]int{1: 5, 2: 3, 3: 5, 4: 9, 5: 3, 6: 1, 7: 9, 8: 1, 9: 5}
	gone := map[int]bool{}
	w := tableWalk{
		ended: func(task int) bool { return gone[task] },
		compare: func(a, b int) (int, error) {
			if gone[a] || gone[b] {
				return 0, unix.ESRCH
			}
			return table[a] - table[b], nil
		},
	}
	var visited []string
	w.visit = func(task, _ string) error { visited = append(visited, filepath.Base(task)); return nil }
	dir := t.TempDir()
	read := func(tasks ...int) []string {
		visited = nil
		for _, task := range tasks {
			name := filepath.Join(dir, strconv.Itoa(task))
			if err := errors.Join(os.MkdirAll(name+"/fd/0", 0o700), w.read(name, task)); err != nil {
				t.Error(err)
			}
		}
		return visited
	}
	if got, want := read(1, 2, 3, 4, 5, 6, 7, 8, 9), []string{"1", "2", "4", "6"}; !slices.Equal(got, want) {
		t.Errorf("visited %q, want %q", got, want)
	}
	gone[1], gone[2] = true, true // what has their tables is read again, once
	if got, want := read(5, 3, 9, 7), []string{"5", "3"}; !slices.Equal(got, want) {
		t.Errorf("after two have ended: visited %q, want %q", got, want)
	}
}

// TestWalkTablesEnded: a process that has ended has no tables, reaped or not; a live one that may not be read is an error.
func TestWalkTablesEnded(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // what has ended belongs to root in /proc
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	sandboxtest.AsNobody(t, t.TempDir(), func() {
		err := walkTables([]int{pid}, func(string, string) error { return nil })
		if !errors.Is(err, unix.EACCES) {
			t.Errorf("a process that may not be read: %v", err)
		}
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if tables := tablesOf(t, pid); len(tables) != 0 {
		t.Errorf("not reaped: %q", tables)
	}
	_ = cmd.Wait() // it was killed
	if tables := tablesOf(t, pid); len(tables) != 0 {
		t.Errorf("reaped: %q", tables)
	}
}
