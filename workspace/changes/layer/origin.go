package layer

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// A file of the layer that was copied from the repository, which now has nothing at its path, was either moved there by
// a job, or the repository's owner removed the original: then it is a conflict. The directory's time tells, if nothing in
// it has changed since the session was opened. Otherwise the file is a suspect. It was moved if its original still exists
// at a path that the layer has removed or replaced. The kernel records no file handle of the original, since the mounter
// of a session's overlay has no rights on the host; so originals are found by size, time and content.
//
// That cannot find the original of a file that was moved and then changed. An apply changes directories itself, so it
// could not be repeated. Hence it removes the mark of a copy from each file that was certainly moved, before it writes to
// the repository: the file is then like one that a job made. Jobs cannot restore the mark, and gain nothing by a copy
// without it.

// A suspect is a file of the layer whose original may have been removed from the repository.
type suspect struct {
	path string
	key  originKey
}

// An originKey has what a copy has in common with its original. The kernel copies the time, too.
type originKey struct {
	size  int64
	mtime unix.Timespec
}

func keyOf(st *unix.Stat_t) originKey { return originKey{st.Size, st.Mtim} }

// maxOriginals is the maximum number of files that are compared with one suspect.
const maxOriginals = 64

// A search is a visitor that looks for the originals of suspects.
type search struct {
	walk   *walk
	upper  *dir
	wanted map[originKey][]string
	tried  map[string]int // by path of the suspect
	found  map[string]bool
}

func (s *search) enter(*pair) error    { return nil }
func (s *search) leave(*pair) error    { return nil }
func (s *search) closed(*change) error { return nil }
func (s *search) wants(c *change) bool { return c.l != nil }

func (s *search) visit(c *change) (bool, error) {
	switch {
	case c.kind == "":
	case isFile(c.l):
		s.compare(c.at.lower, c.name, c.l)
	case isDir(c.l) && !isDir(c.u):
		s.walk.subtree(c, func(d *dir, name, _ string, st *unix.Stat_t, _ bool) {
			if isFile(st) {
				s.compare(d, name, st)
			}
		})
	}
	return true, nil
}

// compare compares a file that the layer has removed or replaced with each suspect that may be its copy.
func (s *search) compare(d *dir, name string, st *unix.Stat_t) {
	for _, path := range s.wanted[keyOf(st)] {
		if s.found[path] || s.tried[path] >= maxOriginals {
			continue
		}
		s.tried[path]++
		s.found[path] = s.equal(d, name, path, st.Size)
	}
}

// equal reports whether a file of the repository and a file of the layer, by its path, have the same content.
func (s *search) equal(d *dir, name, path string, size int64) bool {
	l, _, err := d.file(name)
	if err != nil {
		return false
	}
	defer unix.Close(l)
	u, err := s.upper.below(path)
	if err != nil {
		return false
	}
	defer unix.Close(u)
	same, _ := s.walk.sameContent(u, l, size)
	return same
}

// below opens a regular file for reading by its path, through no link.
func (d *dir) below(path string) (fd int, err error) {
	err = d.at(path, func(in *dir, name string) error {
		fd, _, err = in.file(name)
		return err
	})
	return fd, err
}

// has reports whether there is something at a path, reached through no link.
func (d *dir) has(path string) bool {
	found := false
	_ = d.at(path, func(in *dir, name string) error {
		st, err := in.lstat(name)
		found = st != nil || err != nil
		return err
	})
	return found
}

// at calls f with the directory in which a path is, and its name there.
func (d *dir) at(path string, f func(in *dir, name string) error) error {
	first, rest, more := strings.Cut(path, "/")
	if !more {
		return f(d, first)
	}
	next, err := d.open(first)
	if err != nil {
		return err
	}
	defer next.close()
	return next.at(rest, f)
}

// search looks for the originals of all suspects, also outside of the requested paths.
func (v *checker) search(ctx context.Context, b Bounds, t *trees) error {
	v.found = map[string]bool{}
	if len(v.suspects) == 0 {
		return nil
	}
	s := &search{upper: t.upper, wanted: map[originKey][]string{}, tried: map[string]int{}, found: v.found}
	for _, p := range v.suspects {
		s.wanted[p.key] = append(s.wanted[p.key], p.path)
	}
	b.Bytes = 0 // what is compared has the bound of a list
	s.walk = newWalk(ctx, b.withDefaults(b.Time), nil, s)
	s.walk.compare = true
	return s.walk.run(t)
}

// vanished reports a conflict for each suspect that was not moved.
func (v *checker) vanished() (err error) {
	for _, s := range v.suspects {
		if !v.found[s.path] {
			err = errors.Join(err, v.conflict(s.path, stream.Gone))
		}
	}
	return err
}

// record removes the mark of a copy from each file of the layer that was certainly moved, also outside of the requested
// paths: the apply may write to the directory of any.
func (a *applier) record(ctx context.Context, b Bounds, paths []string, t *trees) error {
	if !a.copies && len(paths) == 0 {
		return nil
	}
	return newWalk(ctx, b, nil, recorder{a}).run(t)
}

// A recorder is a visitor that removes the mark of a copy from files that were certainly moved.
type recorder struct{ *applier }

func (r recorder) enter(*pair) error    { return nil }
func (r recorder) leave(*pair) error    { return nil }
func (r recorder) closed(*change) error { return nil }
func (r recorder) wants(c *change) bool { return c.class() == adds || isDir(c.u) }

func (r recorder) visit(c *change) (bool, error) {
	if isDir(c.u) {
		return isDir(c.l) || !c.marks.copied, nil
	}
	if c.barred != 0 || !isFile(c.u) || !c.marks.copied || r.uncertain(c.at) && !r.found[c.path] {
		return true, nil
	}
	fd, _, err := c.at.upper.file(c.name)
	if err != nil {
		return true, nil
	}
	defer unix.Close(fd)
	// This fails for a file that is read-only. At worst, a repeated apply then reports a conflict.
	_ = unix.Fremovexattr(fd, markOrigin)
	return true, nil
}
