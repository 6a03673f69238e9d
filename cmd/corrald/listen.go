package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketGroup is the group whose members may connect, if it exists.
const socketGroup = "corral"

// listen creates the socket, owned by this process and, if it exists, the group called members. A file at path is replaced only if
// it is a socket without a listener.
func listen(path, members string) (*net.UnixListener, error) {
	address := &net.UnixAddr{Name: path, Net: "unixpacket"}
	if err := makeWay(address); err != nil {
		return nil, err
	}
	// bind(2) sets the mode through the umask: a chmod by name would follow a link that replaced the socket.
	mask := 0o177
	group, noGroup := user.LookupGroup(members)
	if noGroup == nil {
		mask = 0o117
	}
	old := syscall.Umask(mask)
	l, err := net.ListenUnix("unixpacket", address)
	syscall.Umask(old)
	if err != nil || noGroup != nil {
		return l, err
	}
	gid, err := strconv.Atoi(group.Gid)
	if err == nil {
		err = os.Lchown(path, -1, gid)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// makeWay removes the socket of a supervisor that was killed. Whether there is a listener is found by connect(2): only
// ECONNREFUSED means that there is none. EPROTOTYPE is a socket of another type, EAGAIN a listener with a full backlog.
func makeWay(address *net.UnixAddr) error {
	path := address.Name
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket\nhint: name another path with --socket, or move the file", path)
	}
	c, err := net.DialUnix("unixpacket", nil, address)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("another supervisor listens on %s", path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("another program uses %s: %w", path, err)
	}
	return os.Remove(path)
}
