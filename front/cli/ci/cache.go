package ci

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	return copyCaches(from, to, limit)
}

// keepCache copies the caches in the job's directory that are new to the kept ones, and removes the oldest of those beyond
// the maximum size. What is not a regular file is left out.
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
	if err := copyCaches(from, to, limit); err != nil {
		return err
	}
	return evict(to, limit)
}

// copyCaches copies the files of from that to does not have with the same size and time.
func copyCaches(from, to *os.Root, limit int64) error {
	list, err := caches(from)
	if err != nil {
		return err
	}
	for _, c := range list {
		have, err := to.Lstat(c.name)
		if err == nil && have.Size() == c.size && have.ModTime().Equal(c.time) {
			continue
		}
		if c.size > limit {
			return fmt.Errorf("a cache has %d bytes, the maximum is %d\nhint: --cache", c.size, limit)
		}
		if err := copyCache(from, to, c); err != nil {
			return err
		}
	}
	return nil
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

// evict removes the oldest files until the rest has at most limit bytes.
func evict(store *os.Root, limit int64) error {
	list, err := caches(store)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b cached) int { return b.time.Compare(a.time) }) // the newest first
	var total int64
	for _, c := range list {
		if total += c.size; total > limit {
			err = errors.Join(err, store.Remove(c.name))
		}
	}
	return err
}

// caches lists the regular files of a tree. Links are not followed.
func caches(root *os.Root) ([]cached, error) {
	l := &lister{root: root}
	err := l.add(".", 0)
	return l.list, err
}

// A lister lists files. It reads directories in pieces, because a job may have filled them.
type lister struct {
	root    *os.Root
	list    []cached
	entries int
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
			if l.entries++; l.entries > maxCaches || depth > maxCacheDepth {
				return fmt.Errorf("there are more than %d files, or directories more than %d deep", maxCaches, maxCacheDepth)
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
	case !e.Type().IsRegular() || strings.HasPrefix(e.Name(), temporaryPrefix):
		return nil
	}
	info, err := l.root.Lstat(name)
	if err == nil {
		l.list = append(l.list, cached{name, info.Size(), info.ModTime()})
	}
	return err
}
