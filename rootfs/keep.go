package rootfs

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/fault"
)

// An Etc keeps the copy of a host's /etc from one tree to the next while nothing changes of what it was made from: the directories that
// were read, and the files in them (inotify(7)), and what is mounted there, which gives a directory no event. The zero Etc is empty and
// ready for use. It is safe for concurrent use.
type Etc struct {
	mu      fault.Mutex
	watches bool    // guarded by mu: fd is an inotify instance
	fd      int     // guarded by mu
	changes uint64  // guarded by mu
	gaps    bool    // guarded by mu: something is not watched
	kept    etcCopy // guarded by mu
}

// etcCopy is a copy of /etc, and what it was made from.
type etcCopy struct {
	host    string   // Options.Host
	files   []string // Options.EtcFiles
	uid     uint32   // the host's owner
	version uint64   // Etc.changes before it was made
	mounts  string   // mountsAt before it was made
	entries []Entry
	skipped []Skip
}

// watched are the events of a directory: every change of its names, and of the files that have them.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// maxReads bounds one look at the events. Those that are left count as the next change.
const maxReads = 64

// Close ends the watch.
func (e *Etc) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watches {
		unix.Close(e.fd)
	}
	e.watches, e.gaps = false, true
}

// Changes returns a number that is another one after each change of what trees were made from. It returns false if changes may go
// unnoticed.
func (e *Etc) Changes() (n uint64, ok bool) {
	if e == nil {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.look()
}

// look is Changes. The caller holds mu.
func (e *Etc) look() (n uint64, ok bool) {
	if !e.watches && !e.gaps {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		e.fd, e.watches, e.gaps = fd, err == nil, err != nil
	}
	for i := 0; i < maxReads && e.watches; i++ {
		p := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 0); n == 0 && err == nil {
			break
		}
		e.changes++
		var events [16 << 10]byte
		if p[0].Revents&unix.POLLIN == 0 {
			continue
		}
		if _, err := unix.Read(e.fd, events[:]); err != nil && !errors.Is(err, unix.EINTR) {
			e.gaps = true
		}
	}
	return e.changes, !e.gaps
}

// add watches an open directory. It must be called before the directory is read.
func (e *Etc) add(dir int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.watches {
		return
	}
	if _, err := unix.InotifyAddWatch(e.fd, "/proc/self/fd/"+strconv.Itoa(dir), watched); err != nil {
		e.gaps = true
	}
}

// get returns the copy that is kept for these options and a host of uid, if nothing has changed since.
func (e *Etc) get(o *Options, uid uint32) (etcCopy, bool) {
	if e == nil {
		return etcCopy{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n, ok := e.look()
	c := e.kept
	ok = ok && c.entries != nil && c.version == n && c.host == o.Host && c.uid == uid && slices.Equal(c.files, o.EtcFiles)
	if !ok {
		return etcCopy{}, false
	}
	mounts, err := mountsAt(o.Host)
	return c, err == nil && c.mounts == mounts
}

// put keeps a copy.
func (e *Etc) put(c etcCopy) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = c
}

// Beyond returns the entries that t has in addition to base, which is already written, and whether t contains all of
// base. Contents are compared too.
func (t Tree) Beyond(base Tree) (more Tree, ok bool) {
	rest := base.Entries
	for _, e := range t.Entries {
		if len(rest) > 0 && same(e, rest[0]) {
			rest = rest[1:]
			continue
		}
		more.Entries = append(more.Entries, e)
	}
	return more, len(rest) == 0
}

func same(a, b Entry) bool {
	if a.Path != b.Path || a.Mode != b.Mode || a.Link != b.Link || len(a.Data) != len(b.Data) {
		return false
	}
	return len(a.Data) == 0 || &a.Data[0] == &b.Data[0] || string(a.Data) == string(b.Data)
}

// mountsAt returns what is mounted above, at and below what a host's copy is made from (proc_pid_mountinfo(5)).
func mountsAt(host string) (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 4 && (directory.Overlap(f[4], host+"/etc") || directory.Overlap(f[4], host+packageStatusDir)) {
			list.WriteString(line)
		}
	}
	return list.String(), nil
}

// hasOtherNames reports whether an open file may be written to by a name that is in no directory which is watched: it is mounted, or has
// several.
func hasOtherNames(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_NLINK, &st)
	return err != nil || st.Nlink > 1 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
