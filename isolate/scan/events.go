package scan

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Of the inotify watches that a user of the host may have, and that all users of a jail have together, a scanner takes a quarter,
// as much as any one of them gets, and no more than maxWatches.
// Each costs the kernel about 1 KiB, the inode that it keeps in memory included.
const maxWatches = 1 << 16

// drainReads bounds the reads of one drain: more than the kernel's queue holds (fs.inotify.max_queued_events, 16,384 by
// default). What a job adds meanwhile stays, and says that there is something to look at.
const drainReads = 128

// What is waited for, see inotify(7). Of a directory, whatever changes names in it, and permissions. Of a sensitive file, every
// use but looking at it: a store into mapped memory is no event, but the open(2) that the mapping needs is one, and the
// descriptor may outlive its process in a socket.
const (
	dirEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF |
		unix.IN_MOVE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
	fileEvents = unix.IN_OPEN | unix.IN_ACCESS | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// Of a file with a content the same but for reading, which the scanner itself does: see walk.openContent.
	contentEvents = fileEvents &^ unix.IN_ACCESS
	// What is left of these while the scanner opens the file.
	deafEvents = contentEvents &^ unix.IN_OPEN
)

// events is an inotify instance. As long as it has nothing to read, nothing happened to what is watched. One that failed
// watches nothing any more, and so does nil.
type events struct {
	fd    int              // -1 after stop
	limit int              // of watches
	alive map[int32]bool   // the watches; true are those of files
	heard bool             // the last drain found something
	held  bool             // since the last drain a sensitive file may have been opened, or became sensitive when it was open
	lost  bool             // the last drain found that events were dropped
	seen  map[int32]uint32 // what the last drain found of each watch but names in directories
	buf   []byte
}

// newEvents returns nil if there can be none, and then each pass looks at everything.
func newEvents() *events {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return nil
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return nil
	}
	// Not IN_NONBLOCK: the supervisor has the same open file, whose runtime would poll it.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	return &events{fd: fd, limit: min(limit/4, maxWatches), alive: map[int32]bool{}, seen: map[int32]uint32{}, buf: make([]byte, 64<<10)}
}

func (e *events) on() bool { return e != nil && e.fd >= 0 }

// stop gives up for good. The watches go even though the supervisor has the instance open.
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

// drain forgets what happened so far, before it is looked at what it was.
func (e *events) drain() {
	if !e.on() {
		return
	}
	e.heard, e.held, e.lost = false, false, false
	clear(e.seen)
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

// readable says whether a read would not wait. Of an error, EINTR among them, nobody knows, and a read might wait for ever.
func readable(fd int) (bool, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return n > 0 && p[0].Revents&unix.POLLIN != 0, err
}

// take reads records of struct inotify_event, see inotify(7): watch, mask, cookie and length of the name, 4 bytes each.
func (e *events) take(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		b = b[min(size, len(b)):]
		if mask&unix.IN_Q_OVERFLOW != 0 { // some watches may have ended without a word
			e.held, e.lost = true, true
			clear(e.alive)
			continue
		}
		e.held = e.held || e.alive[wd]
		if size == unix.SizeofInotifyEvent { // no name in a directory
			e.seen[wd] |= mask
		}
		if mask&unix.IN_IGNORED != 0 {
			delete(e.alive, wd)
		}
	}
}

// has says whether there still is a watch of that number. Numbers are not used twice.
func (e *events) has(wd int32) bool {
	_, ok := e.alive[wd]
	return ok
}

// dir watches an open directory, which may be open with O_PATH. It returns 0 if that failed.
func (e *events) dir(fd int) int32 { return e.add(fd, dirEvents) }

// file watches anything else, open with O_PATH; a symbolic link as itself.
func (e *events) file(fd int) int32 { return e.add(fd, fileEvents) }

// content watches a file that the scanner reads, open with O_PATH.
func (e *events) content(fd int) int32 { return e.add(fd, contentEvents) }

// deafen watches such a file for all but that it is opened, until content is called.
func (e *events) deafen(fd int) int32 { return e.add(fd, deafEvents) }

func (e *events) add(fd int, mask uint32) int32 {
	if !e.on() {
		return 0
	}
	n, err := unix.InotifyAddWatch(e.fd, "/proc/self/fd/"+strconv.Itoa(fd), mask)
	wd := int32(n)
	switch {
	case errors.Is(err, unix.EACCES): // it cannot be read; perhaps later
		return 0
	case err != nil, !e.has(wd) && len(e.alive) >= e.limit:
		e.stop()
		return 0
	}
	sensitive, old := e.alive[wd]
	file := mask == fileEvents
	if !old && file {
		e.held = true
	}
	e.alive[wd] = file || sensitive // it can have both kinds of names
	return wd
}

// tellsAll lists the file systems on which each change passes through the one inode that is watched. On a network's the
// change may be made elsewhere, and an overlay has several inodes for a file with several names.
func tellsAll(fd int) bool {
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
