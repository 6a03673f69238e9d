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
	if unix.Fchmod(fd, mode) != nil {
		lost = append(lost, "its set-id bits")
		if err := unix.Fchmod(fd, mode&0o1777); err != nil {
			return "", err
		}
	}
	if !copyAttributes(int(f.fd.Fd()), fd) {
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

// copyAttributes copies the access control list and the attributes of namespace user, and reports whether it copied all.
func copyAttributes(from, to int) bool {
	names := make([]byte, maxNames)
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		return err == unix.ENOTSUP
	}
	all, value := true, make([]byte, maxValue)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		attr := string(name)
		if attr != "system.posix_acl_access" && !strings.HasPrefix(attr, "user.") {
			continue
		}
		size, err := unix.Fgetxattr(from, attr, value)
		if err != nil || unix.Fsetxattr(to, attr, value[:size], 0) != nil {
			all = false
		}
	}
	return all
}
