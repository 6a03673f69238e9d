package meter

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A task that waits in poll(2) or select(2) makes the kernel hold this much for each file that it waits for, charged to no cgroup: the
// entry, and one in each of up to two queues of the file. Only pids times nofile bounds that.
const entryBytes = 8 + 2*64

// maxEntries is the maximum of nofile. A task waits for no more files.
const maxEntries = 1 << 20

// fewEntries is more than any operation of futex(2), which stands where poll(2) has the number of files.
const fewEntries = 512

// waitBytes returns what the kernel uses at most for the files that the processes' tasks wait for.
func waitBytes(pids []int, maxTasks int64) (int64, error) {
	var entries int64
	err := eachTask(pids, maxTasks, "syscall", func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil && !goneMeanwhile(err) {
			return err
		}
		entries += entriesIn(string(b))
		return nil
	})
	return entries * entryBytes, err
}

// entriesIn returns for how many files a task waits, given its current call as in /proc/PID/syscall: the number and six arguments. A
// poll(2) that a signal or the freezer has interrupted continues as restart_syscall(2), with the registers of before.
func entriesIn(current string) int64 {
	f := strings.Fields(current)
	if len(f) < 3 {
		return 0 // it runs, or waits in no call
	}
	nr, err := strconv.Atoi(f[0])
	if err != nil {
		return 0
	}
	argument := ""
	switch old := runtime.GOARCH == "amd64"; { // newer processors lack poll(2) and select(2)
	case nr == unix.SYS_PPOLL, nr == unix.SYS_RESTART_SYSCALL, old && nr == 7:
		argument = f[2]
	case nr == unix.SYS_PSELECT6, old && nr == 23:
		argument = f[1]
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(argument, "0x"), 16, 64)
	if err != nil || n > maxEntries || nr == unix.SYS_RESTART_SYSCALL && n < fewEntries { // an argument of another call that was restarted
		return 0
	}
	return int64(n)
}
