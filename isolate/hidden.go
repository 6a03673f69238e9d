package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// hidden knows what in the host's system directories not everybody may read. A session with a root of its own has these
// directories as if they were its own user's: what only root may read on the host would be readable there, so it is
// left out. The directories are root's, and no job writes to them.
type hidden struct {
	mu    sync.Mutex
	known map[string]*hiddenTree // guarded by mu: by directory
}

// A hiddenTree is what was found in a directory.
type hiddenTree struct {
	whole time.Time             // when all of it was looked at
	dirs  map[string]*hiddenDir // by path
}

// A hiddenDir is one directory: it need not be read again as long as its times are the same.
type hiddenDir struct {
	mtime, ctime unix.StatxTimestamp
	dirs         []string // to be looked at, by path
	hide         []string // not to be seen, by path
}

// hiddenFor is how long a directory is not read again that looks unchanged: the mode of a file in it may have become another one.
const hiddenFor = 10 * time.Minute

// of lists what lies in dir, relative to it, and is not everybody's to read, or something else than it seems (a mount
// point). Of a directory only itself is listed. A dir that is not everybody's itself is errNotForAll.
func (h *hidden) of(dir string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.known[dir]
	if old != nil && time.Since(old.whole) > hiddenFor {
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
		return nil, fmt.Errorf("what not everybody may read in %s: %w", dir, w.err)
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

var errNotForAll = errors.New("a directory that is not everybody's")

// A hiddenWalk looks at a tree with every processor: a /usr has more than 100,000 names.
type hiddenWalk struct {
	old   *hiddenTree // nil the first time
	work  sync.WaitGroup
	slots chan struct{}

	mu    sync.Mutex
	found *hiddenTree // guarded by mu
	err   error       // guarded by mu
}

func (w *hiddenWalk) walk(dir string) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	d, err := w.read(dir)
	if errors.Is(err, unix.ENOENT) { // removed meanwhile
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

// read looks at one directory, if it is not as it was.
func (w *hiddenWalk) read(dir string) (*hiddenDir, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MTIME|unix.STATX_CTIME, &st); err != nil {
		return nil, &os.PathError{Op: "statx", Path: dir, Err: err}
	}
	if w.old != nil {
		if d := w.old.dirs[dir]; d != nil && d.mtime == st.Mtime && d.ctime == st.Ctime {
			return w.again(d)
		}
	}
	d := &hiddenDir{mtime: st.Mtime, ctime: st.Ctime}
	if time.Since(time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec))) < 2*clockStep {
		d.mtime, d.ctime = unix.StatxTimestamp{}, unix.StatxTimestamp{} // it may change once more within the clock's step
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := d.add(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// again is a directory with the same names as before: those below it may have become somebody's own meanwhile.
func (w *hiddenWalk) again(old *hiddenDir) (*hiddenDir, error) {
	d := &hiddenDir{mtime: old.mtime, ctime: old.ctime, hide: slices.Clone(old.hide)}
	for _, sub := range old.dirs {
		if err := d.add(sub); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *hiddenDir) add(path string) error {
	seen, err := look(path)
	switch {
	case errors.Is(err, unix.ENOENT): // removed meanwhile
	case err != nil:
		return err
	case seen == seenDir:
		d.dirs = append(d.dirs, path)
	case seen == seenHidden:
		d.hide = append(d.hide, path)
	}
	return nil
}

// What look sees.
const (
	seenOther  = iota // everybody's, or a link, which has no say of its own
	seenDir           // a directory that is everybody's
	seenHidden        // not everybody's, or no file
)

// look says what a session may see of a path. What is mounted on it is not in the clone of the directory that a session
// gets; what lies below that is, and nobody on the host can read it.
func look(path string) (int, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_MODE, &st); err != nil {
		return seenHidden, &os.PathError{Op: "statx", Path: path, Err: err}
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

// whiteOut hides paths in what lies below an overlay whose upper directory this is, before it is mounted: a device of
// number 0:0 stands for nothing (overlayfs.rst, "whiteouts and opaque directories").
func whiteOut(upper string, paths []string) error {
	for _, p := range paths {
		parts := strings.Split(p, "/")
		at := upper
		for _, name := range parts[:len(parts)-1] {
			at = filepath.Join(at, name)
			if err := unix.Mkdir(at, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return &os.PathError{Op: "mkdir", Path: at, Err: err}
			}
			if err := own(at, userOwner, 0o755); err != nil {
				return err
			}
		}
		at = filepath.Join(at, parts[len(parts)-1])
		if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "mknod", Path: at, Err: err}
		}
	}
	return nil
}
