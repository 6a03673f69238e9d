package scan

import (
	"errors"
	"hash/maphash"

	"golang.org/x/sys/unix"
)

// access is who may do what with a directory: its permissions, and its access control lists as one hash. Whoever may write to a
// directory that is sensitive, or to one above it, puts what they like into its place.
type access struct {
	mode uint32
	acl  uint64
}

// aclNames are the attributes in which the kernel has access control lists: acl(5). The default one is for what is made in the
// directory.
var aclNames = []string{"system.posix_acl_access", "system.posix_acl_default"}

// accessOf asks for the permissions of a directory that is open for reading.
func (s *Scanner) accessOf(fd int, st *stat) access {
	a := access{mode: st.mode & 0o7777}
	var h maphash.Hash
	h.SetSeed(s.seed)
	some := false
	for _, name := range aclNames {
		buf := s.buf[:4096] // 500 entries
		n, err := unix.Fgetxattr(fd, name, buf)
		switch {
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
			continue
		case err != nil: // it is longer: any change of the directory's may be one of it
			n = copy(buf, err.Error())
			for i := range 8 {
				buf[n+i] = byte(st.ctime >> (8 * i))
			}
			n += 8
		}
		some = true
		h.WriteString(name)
		h.Write(buf[:n])
	}
	if some {
		a.acl = h.Sum64()
	}
	return a
}

// compareAccess remembers the permissions of the directory n, which is about to be read, and notes whether they were changed.
func (w *walk) compareAccess(n *node, fd int, st *stat) {
	now := w.s.accessOf(fd, st)
	if !n.unread && now != n.access && w.after(st.ctime) && !w.quiet {
		n.opened, w.opened = true, true
	}
	n.access = now
}

// openings reports the directories below the one at hand, and itself, whose permissions were changed, if they are sensitive or
// something below them is. It returns whether that is so.
func (w *walk) openings(n *node) bool {
	sensitive := n.track || len(n.files) > 0
	for _, c := range n.dirs {
		end := len(w.path)
		w.path = append(append(w.path, c.name...), '/')
		sensitive = w.openings(c) || sensitive
		w.path = w.path[:end]
	}
	if n.opened && sensitive {
		path := "."
		if len(w.path) > 0 {
			path = string(w.path[:len(w.path)-1])
		}
		w.take(path, n.row)
	}
	n.opened = false
	return sensitive
}
