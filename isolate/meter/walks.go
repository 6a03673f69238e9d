package meter

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel's list of a directory's names has no length that could be read, but lseek(2) takes longer to follow a longer
// one. A short time proves a short list. A long time proves nothing, because other work also makes a walk longer. So a job
// with few and short lists cannot be ended for memory that others make the kernel use.

// shortWalk is less than the kernel takes to pass the names of layeredBytes, at least 2,700 of 96 bytes: they do not fit in
// the nearest cache of a processor, so that each takes more than a nanosecond. A list of 400 names takes less.
const shortWalk = 3 * time.Microsecond

// walksPatience is how long the directories of a job are walked. On a busy machine each walk can take many milliseconds, and
// a job must not be ended after tablesPatience because it has many directories with short lists: lists that were not walked
// count as long.
const walksPatience = tablesPatience / 2

// A walkTime returns how long the kernel takes to pass the names that it keeps for an open directory of a frozen job. It
// takes over dir, whose position is undefined after an error.
type walkTime func(dir *os.File) (time.Duration, error)

// isShort reports whether the list of a directory is certainly no longer than layeredBytes. After an error, and after
// o.until, it walks no other directory.
func (o *openFiles) isShort(task, fd int) bool {
	if o.walk == nil {
		return false
	}
	if time.Now().After(o.until) {
		o.late = true
		return false
	}
	dir, err := descriptorOf(task, fd)
	if err != nil { // before Linux 6.9 that of another thread than the first one, if they have tables of their own
		return false
	}
	took, err := o.walk(dir)
	if err != nil {
		o.walk = nil
		return false
	}
	return took < shortWalk
}

// descriptorOf returns a copy of a task's descriptor, which shares its position (pidfd_getfd(2)).
func descriptorOf(task, fd int) (*os.File, error) {
	pidfd, err := unix.PidfdOpen(task, 0)
	if err != nil {
		const thread = unix.O_EXCL // PIDFD_THREAD
		pidfd, err = unix.PidfdOpen(task, thread)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	copied, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(copied), ""), nil
}
