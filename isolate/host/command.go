package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoChild is returned for a stub without a child: its job has ended.
var errNoChild = errors.New("the stub has no child")

// OpenCommand opens /proc/PID/cmdline of the first child of a stub, which is its job's first process. Opening it accesses no memory of
// the job. Reading it does, and blocks while a thread of the job holds the lock of that memory, which it may do until a file system
// answers: the supervisor must not read it.
func OpenCommand(stub *os.File) (*os.File, error) {
	pid, err := PidOf(stub)
	if err != nil {
		return nil, err
	}
	// The file is of this process, whatever process gets the number later.
	children, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	defer children.Close()
	if _, err := PidOf(stub); err != nil { // it had ended before, and the number may have been another's
		return nil, err
	}
	first, err := firstChild(children)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", first))
	if err != nil {
		return nil, err
	}
	if now, err := firstChild(children); err != nil || now != first { // likewise
		f.Close()
		return nil, errNoChild
	}
	return f, nil
}

// firstChild returns the first process of a list of children (proc_tid_children(5)). Orphans that the parent adopts stand behind it.
func firstChild(children *os.File) (int, error) {
	var b [64]byte
	n, err := unix.Pread(int(children.Fd()), b[:], 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", children.Name(), err)
	}
	first, _, _ := strings.Cut(string(b[:n]), " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0, errNoChild
	}
	return pid, nil
}
