package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const aclAttribute = "system.posix_acl_access"

// maxACL is the maximum size of an extended attribute (xattr(7)).
const maxACL = 64 << 10

// access gives a file the permissions of the layer's, without letting anybody in whom the file that it replaces keeps out:
// permissions of the group are those of the access control list's mask, or of another group, if the owner's file has these.
// Both are kept where the kernel allows it. Otherwise the group gets at most the permissions of all others.
func access(c *change, fd int, mode uint32) error {
	if !isFile(c.l) {
		return unix.Fchmod(fd, mode)
	}
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	kept := st.Gid == c.l.Gid || unix.Fchown(fd, -1, int(c.l.Gid)) == nil
	acl, err := c.at.lower.acl(c.name)
	if err != nil {
		return fmt.Errorf("read the access control list of the file to replace: %w", err)
	}
	if acl != nil && unix.Fsetxattr(fd, aclAttribute, acl, 0) != nil {
		kept = false // it names users whom this user namespace does not have
	}
	if !kept {
		mode = mode&^0o070 | mode&(c.l.Mode&0o007<<3)
	}
	return unix.Fchmod(fd, mode)
}

// acl returns the access control list of a file, nil if it has none.
func (d *dir) acl(name string) ([]byte, error) {
	fd, err := d.openat(name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, maxACL)
	// fgetxattr(2) refuses a descriptor of O_PATH, which an unreadable file needs.
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), aclAttribute, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
