package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// HiddenPaths finds the paths in the host's system directories that are not readable by every user, and caches
// them. In a session with a root of its own, system directories belong to the session's user: a file that only root
// may read on the host would be readable there, so such files are left out. The directories are root's, and no job
// writes to them.
type HiddenPaths struct {
	mu    fault.Mutex
	known map[string]*hiddenTree // guarded by mu: by directory
}

// A hiddenTree is the cached result for one system directory.
type hiddenTree struct {
	whole time.Time             // when the whole tree was last read
	dirs  map[string]*hiddenDir // by path
}

// A hiddenDir is one directory of a tree. It is not read again while its times are unchanged.
type hiddenDir struct {
	mtime, ctime unix.StatxTimestamp
	dirs         []string // subdirectories to walk, by path
	hide         []string // hidden entries, by path
}

// hiddenCacheTTL is how long a directory with unchanged times is not read again. Changing the mode of a file in it
// does not change the directory's times.
const hiddenCacheTTL = 10 * time.Minute

// Find lists the paths in dir, relative to it, that are not readable by every user or are not what they seem (a mount
// point). Of a hidden directory only the directory itself is listed. If dir itself is not readable by every user, the
// error is errNotForAll.
func (h *HiddenPaths) Find(dir string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.known[dir]
	if old != nil && time.Since(old.whole) > hiddenCacheTTL {
		old = nil
	}
	w := hiddenWalk{
		old: old, found: &hiddenTree{whole: time.Now(), dirs: map[string]*hiddenDir{}},
		slots: make(chan struct{}, max(runtime.NumCPU(), 1)),
	}
	if old != nil {
		w.found.whole = old.whole
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o005 != 0o005 {
		return nil, fmt.Errorf("%s: %w", dir, errors.Join(errNotForAll, err))
	}
	w.work.Go(func() { w.walk(dir) })
	w.work.Wait()
	if w.err != nil {
		return nil, fmt.Errorf("find paths in %s that are not readable by every user: %w", dir, w.err)
	}
	if h.known == nil {
		h.known = map[string]*hiddenTree{}
	}
	h.known[dir] = w.found
	var list []string
	for _, d := range w.found.dirs {
		for _, p := range d.hide {
			list = append(list, strings.TrimPrefix(p, dir+"/"))
		}
	}
	slices.Sort(list)
	return list, nil
}

var errNotForAll = errors.New("the directory is not readable by every user")

// A hiddenWalk reads a tree with one goroutine per processor: a /usr can have more than 100,000 names.
type hiddenWalk struct {
	old   *hiddenTree // nil if nothing valid is cached
	work  sync.WaitGroup
	slots chan struct{}

	mu    fault.Mutex
	found *hiddenTree // guarded by mu
	err   error       // guarded by mu
}

func (w *hiddenWalk) walk(dir string) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	d, err := w.readDir(dir)
	if errors.Is(err, unix.ENOENT) { // removed in the meantime
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.found.dirs[dir] = d
	for _, sub := range d.dirs {
		w.work.Go(func() { w.walk(sub) })
	}
}

// readDir reads one directory, or returns the cached entry if its times are unchanged.
func (w *hiddenWalk) readDir(dir string) (*hiddenDir, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MTIME|unix.STATX_CTIME, &st); err != nil {
		return nil, &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	if w.old != nil {
		if d := w.old.dirs[dir]; d != nil && d.mtime == st.Mtime && d.ctime == st.Ctime {
			return w.recheck(d)
		}
	}
	d := &hiddenDir{mtime: st.Mtime, ctime: st.Ctime}
	if time.Since(time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec))) < 2*ClockStep {
		d.mtime, d.ctime = unix.StatxTimestamp{}, unix.StatxTimestamp{} // it may change again within the clock's step, without a new time
	}
	// Names are looked up below the open directory: resolving each from the root takes twice as long.
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for fd, below := int(f.Fd()), dir+"/"; len(names) > 0; names = names[1:] {
		if err := d.add(fd, below, names[0]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// recheck returns the entry of a directory whose names are unchanged. The modes of its subdirectories may have
// changed, so these are classified again.
func (w *hiddenWalk) recheck(old *hiddenDir) (*hiddenDir, error) {
	d := &hiddenDir{mtime: old.mtime, ctime: old.ctime, hide: slices.Clone(old.hide)}
	for _, sub := range old.dirs {
		if err := d.add(unix.AT_FDCWD, "", sub); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// add classifies a name in an open directory, and stores its path, which begins with below, if that is to be walked or hidden.
func (d *hiddenDir) add(dirFD int, below, name string) error {
	seen, err := classify(dirFD, name)
	switch {
	case errors.Is(err, unix.ENOENT): // removed in the meantime
	case err != nil:
		return &os.PathError{Op: "statx", Path: below + name, Err: err}
	case seen == seenDir:
		d.dirs = append(d.dirs, below+name)
	case seen == seenHidden:
		d.hide = append(d.hide, below+name)
	}
	return nil
}

// Results of classify.
const (
	seenOther  = iota // readable by every user, or a symbolic link, whose own mode means nothing
	seenDir           // a directory that every user may list and enter
	seenHidden        // not readable by every user, or neither a file, a directory nor a link
)

// classify reports what a session may see of a name in an open directory. A mount point is hidden: what is mounted there is not part
// of the clone of the directory that a session gets, and what lies under the mount cannot be read by anyone on the host.
func classify(dirFD int, name string) (int, error) {
	var st unix.Statx_t
	if err := unix.Statx(dirFD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_MODE, &st); err != nil {
		return seenHidden, err
	}
	mounted := st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	switch mode := uint32(st.Mode); {
	case mode&unix.S_IFMT == unix.S_IFDIR && mode&0o005 == 0o005 && !mounted:
		return seenDir, nil
	case mode&unix.S_IFMT == unix.S_IFREG && mode&0o004 != 0 && !mounted, mode&unix.S_IFMT == unix.S_IFLNK:
		return seenOther, nil
	}
	return seenHidden, nil
}
