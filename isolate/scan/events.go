package scan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The number of inotify watches is limited for each user of the host, and for all users of a jail together. A scanner
// takes a quarter, the share that each user of a jail gets, and no more than maxWatches. Each costs the kernel about 1
// KiB, including the inode that it pins in memory.
const maxWatches = 1 << 16

// drainReads is the maximum number of reads of one drain: enough for more than the kernel's queue holds
// (fs.inotify.max_queued_events, 16,384 by default). Events that a job causes meanwhile stay in the queue, so the scanner
// is still seen to have work.
const drainReads = 128

// The watched events, see inotify(7). For a directory: every change of the names in it, and of permissions. For a
// sensitive file: every use but stat(2). A store into mapped memory is not an event, but the open(2) before mmap(2) is,
// and the descriptor may outlive its process in a socket.
const (
	dirEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF |
		unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
	fileEvents = unix.IN_OPEN | unix.IN_ACCESS | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// events is an inotify instance. While it has nothing to read, none of the watched files has changed. After an error, and
// if nil, it watches nothing.
type events struct {
	fd    int             // -1 after stop
	limit int             // maximum number of watches
	alive map[int32]*zone // the watches; of a directory, its rules
	heard bool            // the last drain found something
	buf   []byte

	seen  map[int32]map[string]seen // what the drains since the last reset found of sensitive names, by watch
	names int                       // in seen
	lost  bool                      // some were not kept, or overflowed the kernel's queue
}

// seen is what events say of a name in a directory.
type seen struct {
	came, left bool
	row        int16
}

// maxSeen bounds the names that are kept of events. A job that changes more has changed sensitive paths enough to be noticed.
const maxSeen = 1 << 10

// newEvents returns nil if there is no inotify instance or its limit is unknown; then each pass looks at everything.
func newEvents() *events {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return nil
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return nil
	}
	// Not IN_NONBLOCK: the supervisor shares the open file description, and its runtime would add a non-blocking
	// descriptor to its poller.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	return &events{
		fd: fd, limit: min(limit/4, maxWatches), alive: map[int32]*zone{}, seen: map[int32]map[string]seen{}, buf: make([]byte, 64<<10),
	}
}

func (e *events) on() bool { return e != nil && e.fd >= 0 }

// stop permanently ends watching. It removes the watches one by one, as the supervisor has the instance open too.
func (e *events) stop() {
	if !e.on() {
		return
	}
	for wd := range e.alive {
		_, _ = unix.InotifyRmWatch(e.fd, uint32(wd))
	}
	unix.Close(e.fd)
	e.fd, e.alive = -1, nil
}

// drain reads the events so far. It must run before the pass that looks at the files they are about.
func (e *events) drain() {
	if !e.on() {
		return
	}
	e.heard = false
	for range drainReads {
		some, err := readable(e.fd)
		if err == nil && !some {
			return
		}
		n := 0
		if err == nil {
			n, err = unix.Read(e.fd, e.buf)
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			e.stop()
			return
		}
		e.heard = true
		e.take(e.buf[:n])
	}
}

// readable reports whether a read would not block. On an error, also EINTR, that is unknown, and a read might block
// forever.
func readable(fd int) (bool, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return n > 0 && p[0].Revents&unix.POLLIN != 0, err
}

// take parses records of struct inotify_event, see inotify(7): watch, mask, cookie and length of the name, 4 bytes each.
func (e *events) take(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		name := bytes.TrimRight(b[unix.SizeofInotifyEvent:min(size, len(b))], "\x00")
		b = b[min(size, len(b)):]
		if mask&unix.IN_Q_OVERFLOW != 0 { // some watches may have ended without an event
			clear(e.alive)
			e.lost = true
			continue
		}
		e.note(wd, mask, name)
		if mask&unix.IN_IGNORED != 0 {
			delete(e.alive, wd)
		}
	}
}

// note keeps the name of an event if it is sensitive, or that of a directory above something sensitive.
func (e *events) note(wd int32, mask uint32, name []byte) {
	now := seen{came: mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0, left: mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0}
	z := e.alive[wd]
	if !now.came && !now.left || z == nil {
		return
	}
	if now.row = z.rowOf(name, mask&unix.IN_ISDIR != 0); now.row == noRow {
		return
	}
	before, known := e.seen[wd][string(name)]
	switch {
	case !known && e.names >= maxSeen:
		e.lost = true
		return
	case !known:
		e.names++
	}
	if e.seen[wd] == nil {
		e.seen[wd] = map[string]seen{}
	}
	now.came, now.left = now.came || before.came, now.left || before.left
	e.seen[wd][string(name)] = now
}

// reset forgets what the drains found.
func (e *events) reset() {
	clear(e.seen)
	e.names, e.lost = 0, false
}

// in returns what was found in the directory with watch wd.
func (e *events) in(wd int32) map[string]seen {
	if !e.on() {
		return nil
	}
	return e.seen[wd]
}

// has reports whether watch wd still exists. The kernel does not reuse numbers.
func (e *events) has(wd int32) bool {
	_, ok := e.alive[wd]
	return ok
}

// dir watches an open directory with these rules, which may be open with O_PATH. It returns the watch, or 0 on failure.
func (e *events) dir(fd int, rules *zone) int32 { return e.add(fd, dirEvents, rules) }

// way watches a directory on the way of a link. It is like dir otherwise.
func (e *events) way(fd int) int32 { return e.add(fd, dirEvents, nil) }

// file watches any other file, open with O_PATH; it does not follow a symbolic link.
func (e *events) file(fd int) int32 { return e.add(fd, fileEvents, nil) }

func (e *events) add(fd int, mask uint32, rules *zone) int32 {
	if !e.on() {
		return 0
	}
	n, err := unix.InotifyAddWatch(e.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	wd := int32(n)
	switch {
	case errors.Is(err, unix.EACCES): // not readable now; retried in the next pass
		return 0
	case err != nil, !e.has(wd) && len(e.alive) >= e.limit:
		e.stop()
		return 0
	}
	if rules != nil || !e.has(wd) { // the directory may be above what a link leads to, and be examined for itself too
		e.alive[wd] = rules
	}
	return wd
}

// reportsAllChanges reports whether fd is on a file system on which each change goes through the one inode that is watched. On a
// network file system another host may make the change, and an overlay has several inodes for a file with several names.
func reportsAllChanges(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	switch int64(fs.Type) { //nolint:unconvert // it is 32 bits wide on some architectures
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}
