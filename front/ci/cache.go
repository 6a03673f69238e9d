package ci

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The caches of a project are files that the runner's scripts make and read in the job's directory cache. Jobs write to
// that directory, so it is not the one that is kept: files are copied before the stage that reads them, and after the stage
// that makes them.

// Bounds of a project's caches, beside --cache.
const (
	maxCaches     = 1024
	maxCacheDepth = 16
)

// temporaryPrefix begins the names of files that are not complete yet.
const temporaryPrefix = ".new-"

// A cached is a file in a tree of caches.
type cached struct {
	name string // relative, with slashes
	size int64
	time time.Time
}

// restoreCache copies the kept caches into the job's directory.
func restoreCache(store string, dir *os.Root, limit int64) error {
	from, err := os.OpenRoot(store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := dir.OpenRoot("cache")
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	return copyCaches(from, to, limit, math.MaxInt)
}

// keepCache copies the caches in the job's directory that are new to the kept ones, and removes the oldest of those beyond
// the maximum size, also if not everything could be copied. What is not a regular file is left out.
func keepCache(dir *os.Root, store string, limit int64) error {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
	from, err := dir.OpenRoot("cache")
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenRoot(store)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	// First, too: an earlier call may have been killed, and what it left could fill the disk.
	if err := evict(to, limit); err != nil {
		return err
	}
	return errors.Join(copyCaches(from, to, limit, maxCaches), evict(to, limit))
}

// copyCaches copies the files of from that to does not have with the same size and time: the newest, up to limit bytes
// together. It lists at most maxEntries entries of from. A sparse file of a job counts with its full size, which a copy
// of it takes.
func copyCaches(from, to *os.Root, limit int64, maxEntries int) error {
	list, err := caches(from, maxEntries)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(c cached) bool { return c.temporary() })
	keep, more := newest(list, limit)
	for _, c := range keep {
		have, err := to.Lstat(c.name)
		if err == nil && have.Size() == c.size && have.ModTime().Equal(c.time) {
			continue
		}
		if err := copyCache(from, to, c); err != nil {
			return err
		}
	}
	if len(more) > 0 {
		return fmt.Errorf("the caches have more than %d bytes: %d files were left out\nhint: --cache", limit, len(more))
	}
	return nil
}

// newest divides a list into the newest files that have at most limit bytes together, and maxCaches in number, and the others.
func newest(list []cached, limit int64) (keep, more []cached) {
	slices.SortFunc(list, func(a, b cached) int { return b.time.Compare(a.time) })
	for _, c := range list {
		if c.size > limit || len(keep) == maxCaches {
			more = append(more, c)
			continue
		}
		limit -= c.size
		keep = append(keep, c)
	}
	return keep, more
}

// copyCache copies one file, and puts it into place at once: another job may read it.
func copyCache(from, to *os.Root, c cached) error {
	// A job may have put a FIFO there, which must not block.
	source, err := from.OpenFile(c.name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	if info, err := source.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("a cache was replaced"))
	}
	if err := to.MkdirAll(path.Dir(c.name), 0o700); err != nil {
		return err
	}
	temporary := path.Join(path.Dir(c.name), unique(temporaryPrefix))
	target, err := to.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, io.LimitReader(source, c.size))
	err = errors.Join(err, target.Close())
	if err == nil {
		err = to.Chtimes(temporary, c.time, c.time)
	}
	if err == nil {
		err = to.Rename(temporary, c.name)
	}
	if err != nil {
		_ = to.Remove(temporary)
	}
	return err
}

// evict removes the oldest files until the rest has at most limit bytes, what killed calls have left, and directories that are
// empty then.
func evict(store *os.Root, limit int64) error {
	list, err := caches(store, math.MaxInt)
	if err != nil {
		return err
	}
	whole := slices.DeleteFunc(slices.Clone(list), func(c cached) bool { return c.temporary() })
	_, remove := newest(whole, limit)
	for _, c := range list {
		if c.temporary() && time.Since(c.time) > abandonedAfter {
			remove = append(remove, c)
		}
	}
	for _, c := range remove {
		if gone := store.Remove(c.name); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		for dir := path.Dir(c.name); dir != "."; dir = path.Dir(dir) {
			if store.Remove(dir) != nil {
				break // it has other caches
			}
		}
	}
	return err
}

func (c *cached) temporary() bool { return strings.HasPrefix(path.Base(c.name), temporaryPrefix) }

// caches lists the regular files of a tree, which may have most entries. Links are not followed.
func caches(root *os.Root, most int) ([]cached, error) {
	l := &lister{root: root, most: most}
	err := l.add(".", 0)
	return l.list, err
}

// A lister lists files. It reads directories in pieces, because a job may have filled them.
type lister struct {
	root    *os.Root
	list    []cached
	entries int
	most    int
}

func (l *lister) add(dir string, depth int) error {
	d, err := l.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(256)
		for _, e := range entries {
			if l.entries++; l.entries > l.most || depth > maxCacheDepth {
				return fmt.Errorf("there are more than %d files, or directories more than %d deep", l.most, maxCacheDepth)
			}
			if err := l.entry(path.Join(dir, e.Name()), e, depth); err != nil {
				return err
			}
		}
		if err != nil || len(entries) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

func (l *lister) entry(name string, e fs.DirEntry, depth int) error {
	switch {
	case e.IsDir():
		return l.add(name, depth+1)
	case !e.Type().IsRegular():
		return nil
	}
	info, err := l.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) { // another job of the project has removed it
		return nil
	}
	if err == nil {
		l.list = append(l.list, cached{name, info.Size(), info.ModTime()})
	}
	return err
}
