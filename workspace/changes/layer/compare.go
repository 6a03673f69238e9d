package layer

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"corral/job"
)

// classify sets the kind of c, "" if there is no difference.
func (w *walk) classify(c *change) {
	switch c.class() {
	case deletes:
		c.kind = job.ChangeDeleted
		if isLink(c.l) {
			c.old, _ = c.at.lower.readlink(c.name)
		}
		return
	case adds:
		c.kind = job.ChangeAdded
	default:
		c.kind = w.alteration(c)
	}
	w.links(c)
	if isFile(c.u) && c.kind != "" {
		w.readable(c)
	}
}

// alteration returns the kind of change of a path that is in both trees.
func (w *walk) alteration(c *change) job.ChangeKind {
	if c.u.Mode&unix.S_IFMT != c.l.Mode&unix.S_IFMT {
		return job.ChangeReplaced
	}
	switch {
	case isLink(c.u):
		if w.links(c) {
			return ""
		}
		return job.ChangeModified
	case isFile(c.u):
		if c.u.Size != c.l.Size || !w.same(c) {
			return job.ChangeModified
		}
	case !isDir(c.u):
		return "" // all special files of a type are equal
	}
	if (c.u.Mode^c.l.Mode)&permissions != 0 {
		return job.ChangeMode
	}
	return ""
}

// links reads the targets of links, and reports whether both are links with the same target.
func (w *walk) links(c *change) bool {
	var errs [2]error
	if isLink(c.u) {
		c.link, errs[0] = c.at.upper.readlink(c.name)
	}
	if isLink(c.l) {
		c.old, errs[1] = c.at.lower.readlink(c.name)
	}
	if errors.Join(errs[:]...) != nil {
		w.miss(c.path, false)
		return false
	}
	return isLink(c.u) && isLink(c.l) && c.link == c.old
}

// readable reads the marks of a file, and bars the change if the file cannot be read.
func (w *walk) readable(c *change) {
	fd, _, err := c.at.upper.file(c.name)
	if err == nil {
		c.marks, err = readMarks(fd)
		unix.Close(fd)
	}
	w.bar(c, err)
}

// same reports whether two files of the same size have the same content. If it cannot determine that, it returns false.
func (w *walk) same(c *change) bool {
	if c.u.Size == 0 {
		return true
	}
	if !w.compare {
		return false
	}
	u, _, err := c.at.upper.file(c.name)
	if err != nil {
		return false
	}
	defer unix.Close(u)
	// A metacopy file in the layer has the size of the file, but no content.
	if m, err := readMarks(u); err != nil || m.unknown {
		return false
	}
	l, _, err := c.at.lower.file(c.name)
	if err != nil {
		return false
	}
	defer unix.Close(l)
	same, whole := w.sameContent(u, l, c.u.Size)
	if !whole {
		w.miss(c.path, false)
	}
	return same
}

// sameContent compares size bytes of two files. whole is false if the bounds were reached.
func (w *walk) sameContent(a, b int, size int64) (same, whole bool) {
	bufs := [2][]byte{make([]byte, 64<<10), make([]byte, 64<<10)}
	for at := int64(0); at < size; {
		if size > sparse {
			if at = min(nextData(a, at, size), nextData(b, at, size)); at >= size {
				break
			}
		}
		if w.over() || w.bytes <= 0 {
			return false, false
		}
		n := int(min(size-at, int64(len(bufs[0]))))
		if !readAt(a, bufs[0][:n], at) || !readAt(b, bufs[1][:n], at) || !bytes.Equal(bufs[0][:n], bufs[1][:n]) {
			return false, true
		}
		at += int64(n)
		w.bytes -= int64(n)
	}
	return true, true
}
