package edit

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of extended attributes: those of the kernel (xattr(7)).
const (
	maxNames = 64 << 10
	maxValue = 64 << 10
)

// accessList is the attribute with a file's access control list (acl(5)).
const accessList = "system.posix_acl_access"

// inherit gives t what the file has beside its content: owner, mode, access control list and the user's attributes. What
// cannot be kept is in the notes; security attributes are those of a new file.
func (f *file) inherit(t *os.File) (notes string, err error) {
	var lost []string
	var st unix.Stat_t
	fd := int(t.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Uid != f.st.Uid || st.Gid != f.st.Gid {
		if unix.Fchown(fd, int(f.st.Uid), int(f.st.Gid)) != nil {
			lost = append(lost, "its owner or group")
		}
	}
	mode := f.st.Mode & 0o7777
	whole, list := copyAttributes(int(f.fd.Fd()), fd)
	if !list || len(lost) > 0 && st.Gid != f.st.Gid {
		// The group's permissions were those of the list's mask, or of another group: nobody gets in who was kept out.
		mode = mode&^0o070 | mode&(mode&0o007<<3)
	}
	if unix.Fchmod(fd, mode) != nil {
		lost = append(lost, "its set-id bits")
		if err := unix.Fchmod(fd, mode&0o1777); err != nil {
			return "", err
		}
	}
	if !whole {
		lost = append(lost, "all of its extended attributes")
	}
	if f.st.Nlink > 1 {
		notes = "The file had other names (hard links): those keep the old content.\n"
	}
	if len(lost) > 0 {
		notes += "Could not keep " + strings.Join(lost, ", ") + ".\n"
	}
	return notes, nil
}

// copyAttributes copies the access control list and the attributes of namespace user, and reports whether it copied all, and
// whether the list is now the same.
func copyAttributes(from, to int) (all, list bool) {
	names := make([]byte, maxNames)
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		return err == unix.ENOTSUP, err == unix.ENOTSUP
	}
	all, list = true, true
	value := make([]byte, maxValue)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		attr := string(name)
		if attr != accessList && !strings.HasPrefix(attr, "user.") {
			continue
		}
		size, err := unix.Fgetxattr(from, attr, value)
		if err != nil || unix.Fsetxattr(to, attr, value[:size], 0) != nil {
			all, list = false, list && attr != accessList
		}
	}
	return all, list
}
