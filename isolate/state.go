package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/job"
)

// DefaultStateDir holds what outlives a supervisor:
//
//	DIR/audit        the audit log, root's
//	DIR/users/UID    what the front-ends of a user keep, that user's
const DefaultStateDir = "/var/lib/corral"

// openState makes the state directory and opens what users' directories lie in. Every one of these is root's alone to
// write, so that no name in them is a user's doing.
func (s *Supervisor) openState() error {
	dir := s.config.StateDir
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	top, err := openOwn(unix.AT_FDCWD, dir, 0o711)
	if err != nil {
		return err
	}
	defer top.Close()
	s.users, err = openOwn(int(top.Fd()), "users", 0o711)
	return err
}

// openOwn opens a directory of root's that nobody else can write, which is made with mode if it is not there.
func openOwn(at int, name string, mode uint32) (*os.File, error) {
	made := unix.Mkdirat(at, name, mode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: made}
	}
	dir, st, err := openDirAt(at, name)
	if err != nil {
		return nil, err
	}
	switch {
	case st.Uid != 0 || st.Mode&0o022 != 0:
		err = fmt.Errorf("%s must be a directory of root that nobody else can write", name)
	case made == nil:
		err = unix.Fchmod(int(dir.Fd()), mode) // the umask is stricter
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// openDirAt opens a directory, and no link.
func openDirAt(at int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return statDir(fd, name, err)
}

// statDir looks at what was opened, if it was.
func statDir(fd int, name string, err error) (*os.File, *unix.Stat_t, error) {
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), &st, nil
}

// openUserDir opens a directory that a user owns, and nothing that is mounted on it: a file system of the user's own (FUSE)
// could have the supervisor wait.
func openUserDir(at int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.EXDEV) {
		return nil, nil, fmt.Errorf("something is mounted on the state directory of user %s: unmount it", name)
	}
	return statDir(fd, name, err)
}

// nobodyAtAll is what chown(2) takes for "leave it as it is".
const nobodyAtAll = 1<<32 - 1

// stateFor opens the directory of a user for a client: for its own user, or, when it is root's own front-end, for the one
// that this becomes.
func (c *client) stateFor(uid uint32) (*os.File, error) {
	switch {
	case uid == nobodyAtAll || c.peer.Embedded && uid == 0:
		return nil, &job.Refusal{Message: fmt.Sprintf("user %d has no state directory", uid)}
	case !c.peer.Embedded && uid != c.peer.UID:
		return nil, &job.Refusal{Message: fmt.Sprintf("the state of user %d is not yours (user %d)", uid, c.peer.UID)}
	case c.peer.holder != 0: // each of 65,536 ids would have a directory, which no one removes
		return nil, &job.Refusal{
			Message: fmt.Sprintf("user %d is a subordinate id of user %d (subuid(5)) and has no state directory", uid, c.peer.holder),
			Hint:    "run the front-end as that user, outside the user namespace",
		}
	case c.peer.Embedded && c.became != 0 && uid != c.became:
		return nil, &job.Refusal{Message: fmt.Sprintf("this front-end became user %d already", c.became)}
	}
	if c.peer.Embedded {
		c.became = uid
	}
	return c.s.userDir(uid)
}

// userDir opens a user's directory, which is made if it is not there. It changes hands last: one of root's, which a
// supervisor that was killed has left, is not a user's yet.
func (s *Supervisor) userDir(uid uint32) (*os.File, error) {
	at, name := int(s.users.Fd()), strconv.FormatUint(uint64(uid), 10)
	if err := unix.Mkdirat(at, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	dir, st, err := openUserDir(at, name)
	if err != nil {
		return nil, err
	}
	switch st.Uid {
	case uid:
	case 0:
		err = errors.Join(unix.Fchmod(int(dir.Fd()), 0o700), unix.Fchown(int(dir.Fd()), int(uid), -1))
	default:
		err = fmt.Errorf("the state directory of user %d belongs to user %d", uid, st.Uid)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}
