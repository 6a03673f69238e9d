package rootfs

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// A Watch notices changes of what copies of /etc were made from: the directories that were read, and the files in them
// (inotify(7)). It is safe for concurrent use. A nil Watch notices nothing.
type Watch struct {
	mu      fault.Mutex
	fd      int    // guarded by mu; -1: closed
	changes uint64 // guarded by mu
	gaps    bool   // guarded by mu: something is not watched
}

// watched are the events of a directory: every change of its names, and of the files that have them.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// maxReads bounds one look at the events. Those that are left count as the next change.
const maxReads = 64

// NewWatch returns a watch, or nil if the kernel gives none. The caller must close it.
func NewWatch() *Watch {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	return &Watch{fd: fd}
}

// Close ends the watch.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	unix.Close(w.fd)
	w.fd, w.gaps = -1, true
}

// Changes returns a number that is another one after each change. It returns false if changes may go unnoticed.
func (w *Watch) Changes() (n uint64, ok bool) {
	if w == nil {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 0; i < maxReads && w.fd >= 0; i++ {
		p := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 0); n == 0 && err == nil {
			break
		}
		w.changes++
		var events [16 << 10]byte
		if p[0].Revents&unix.POLLIN == 0 {
			continue
		}
		if _, err := unix.Read(w.fd, events[:]); err != nil && !errors.Is(err, unix.EINTR) {
			w.gaps = true
		}
	}
	return w.changes, !w.gaps
}

// add watches the directory name below dir. It must be called before the directory is read.
func (w *Watch) add(dir int, name string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return
	}
	if _, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(dir)+"/"+name, watched); err != nil {
		w.gaps = true
	}
}
