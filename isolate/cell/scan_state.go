package cell

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/scan"
	"corral/isolate/wire"
)

// Most jobs change nothing that a scanner looks for. The scanner watches what it has scanned by inotify(7), and the
// supervisor holds the same inotify instance, but only polls it: the events show what jobs did, and only the scanner
// may read them. As long as the queue is empty, no other scan was made since the job began and no other job ran with it, a
// scan would find nothing.

// scanState is what the supervisor knows about a scanner's passes without a request. A pass is a scan of everything
// watched.
type scanState struct {
	events *os.File // the scanner's inotify instance, or nil; set before the scanner is used

	mu     sync.Mutex
	busy   bool   // guarded by mu: a pass is in progress
	passes uint64 // guarded by mu: number of passes that found events in the queue
	armed  bool   // guarded by mu: see scan.Answer
}

// begin records the start of a pass. From now on the queue may be empty although something happened.
func (q *scanState) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = true
}

// end records the end of a pass.
func (q *scanState) end(a *scan.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy, q.armed = false, a.Armed
	if a.Heard || !a.Armed {
		q.passes++
	}
}

// pass returns the number of passes that found events.
func (q *scanState) pass() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passes
}

// quiet reports whether nothing has happened since the last pass.
func (q *scanState) quiet() bool { return q.unchangedSince(q.pass()) }

// unchangedSince reports whether nothing has happened since pass returned this number. The queue is checked first: a pass
// that empties it has set busy before. So a pass that was in progress when the number was read has ended since.
func (q *scanState) unchangedSince(pass uint64) bool {
	if q.events == nil || host.SomethingToRead(q.events) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.armed && !q.busy && pass == q.passes
}

// close closes the supervisor's descriptor of the inotify instance. It must not be the last one: closing that would
// wait for the kernel to remove each watch.
func (q *scanState) close() {
	if q.events != nil {
		q.events.Close()
	}
}

// takeEvents takes over the descriptors of a scanner's first answer and returns the inotify instance, or nil if there
// are none. Any other file is refused, because poll(2) on it could do anything.
func takeEvents(files []*os.File) (*os.File, error) {
	if len(files) == 0 {
		return nil, nil
	}
	err := errors.New("the scanner sent a descriptor that is not an inotify instance")
	if len(files) == 1 {
		// The name is checked first, because it comes from the kernel: fstatfs(2) can block on another file system. No
		// path begins like this.
		var fs unix.Statfs_t
		fd := int(files[0].Fd())
		name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) // on failure name is "", which does not match
		if name == "anon_inode:inotify" && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.ANON_INODE_FS_MAGIC {
			return files[0], nil
		}
	}
	wire.CloseAll(files)
	return nil, err
}

// A cachedKept is an answer that is valid while nothing has happened since.
type cachedKept struct {
	given  bool
	answer scan.KeptAnswer
	pass   uint64 // the number of passes when it was given
}
