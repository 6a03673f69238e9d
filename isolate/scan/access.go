package scan

import (
	"errors"
	"hash/maphash"

	"golang.org/x/sys/unix"
)

// access describes who may access a directory: its permissions, and a hash of its access control lists. Users who can
// write to a sensitive directory, or to one above it, can replace it.
type access struct {
	mode uint32
	acl  uint64
}

// aclNames are the extended attributes that hold access control lists: acl(5). The default one applies to new files in
// the directory.
var aclNames = []string{"system.posix_acl_access", "system.posix_acl_default"}

// accessOf returns the permissions and access control lists of a directory that is open for reading.
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
		case err != nil: // too long to read: any change of the directory may be a change of the list
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

// compareAccess stores the permissions of the directory n, which is about to be read, and records whether they were
// changed.
func (w *walk) compareAccess(n *node, fd int, st *stat) {
	now := w.s.accessOf(fd, st)
	if !n.unread && now != n.access && w.after(st.ctime) && !w.silent {
		n.opened, w.opened = true, true
	}
	n.access = now
}

// reportOpened reports the current directory and those below it whose permissions were changed, if they or anything below
// them is sensitive. It returns whether the current directory is or contains something sensitive.
func (w *walk) reportOpened(n *node) bool {
	sensitive := n.track || len(n.files) > 0
	for _, c := range n.dirs {
		end := len(w.path)
		w.path = append(append(w.path, c.name...), '/')
		sensitive = w.reportOpened(c) || sensitive
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
