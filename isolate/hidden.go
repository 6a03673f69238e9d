package isolate

import (
	"errors"
	"fmt"
	"io/fs"
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
	known map[string]hiddenList // guarded by mu: by directory
}

type hiddenList struct {
	paths []string
	when  time.Time
}

// hiddenFor is how long a list is good for: packages are installed while a supervisor runs.
const hiddenFor = 10 * time.Minute

// of lists what lies in dir, relative to it, and is not everybody's to read. Of a directory that is not everybody's, only
// itself is listed.
func (h *hidden) of(dir string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l, ok := h.known[dir]; ok && time.Since(l.when) < hiddenFor {
		return l.paths, nil
	}
	w := hiddenWalk{dir: dir, slots: make(chan struct{}, max(runtime.NumCPU(), 1))}
	w.work.Go(func() { w.walk(dir) })
	w.work.Wait()
	if w.err != nil {
		return nil, fmt.Errorf("what not everybody may read in %s: %w", dir, w.err)
	}
	slices.Sort(w.paths)
	if h.known == nil {
		h.known = map[string]hiddenList{}
	}
	h.known[dir] = hiddenList{w.paths, time.Now()}
	return w.paths, nil
}

// A hiddenWalk looks at a tree with every processor: a /usr has more than 100,000 names.
type hiddenWalk struct {
	dir   string
	work  sync.WaitGroup
	slots chan struct{}

	mu    sync.Mutex
	paths []string // guarded by mu
	err   error    // guarded by mu
}

func (w *hiddenWalk) walk(dir string) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		w.fail(err)
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		hide, err := notForAll(e)
		switch {
		case err != nil:
			w.fail(err)
			return
		case hide:
			w.mu.Lock()
			w.paths = append(w.paths, strings.TrimPrefix(path, w.dir+"/"))
			w.mu.Unlock()
		case e.IsDir():
			w.work.Go(func() { w.walk(path) })
		}
	}
}

func (w *hiddenWalk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

// notForAll says whether something is not everybody's to read. Links have no say of their own.
func notForAll(d fs.DirEntry) (bool, error) {
	if d.Type() == fs.ModeSymlink {
		return false, nil
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mode := info.Mode()
	switch {
	case mode.IsDir():
		return mode.Perm()&0o005 != 0o005, nil
	case mode.IsRegular():
		return mode.Perm()&0o004 == 0, nil
	}
	return true, nil // a device, a socket
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
