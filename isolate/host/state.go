package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// DefaultStateDir holds state that outlives a supervisor:
//
//	DIR/audit        the audit log, owned by root
//	DIR/users/UID    state of a user's front-ends, owned by that user
//	DIR/cache        packages that corral-egress keeps for jobs, a volume for each user, see State.Cache
const DefaultStateDir = "/var/lib/corral"

// A State is the open state directory.
type State struct {
	users *os.File // parent of the users' directories
	path  string
}

// OpenState creates the state directory dir and opens the parent of the users' directories. Both are writable by root
// alone, so that no user controls a name in them.
func OpenState(dir string) (*State, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	top, err := openOwn(unix.AT_FDCWD, dir, 0o711)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	users, err := openOwn(int(top.Fd()), "users", 0o711)
	if err != nil {
		return nil, err
	}
	return &State{users, dir}, nil
}

// Close closes the directory of users' state.
func (s *State) Close() { s.users.Close() }

// openOwn opens a directory that is writable by root alone. If it does not exist it is created with mode.
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
		err = fmt.Errorf("%s must be a directory of root that no other user can write", name)
	case made == nil:
		err = unix.Fchmod(int(dir.Fd()), mode) // the umask is stricter
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// openDirAt opens a directory. It does not follow a symbolic link.
func openDirAt(at int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return statDir(fd, name, err)
}

// statDir calls fstat(2) on an opened directory and wraps it; err is the error of opening it.
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

// openUserDir opens a directory that a user owns. It refuses a mount point: a file system of the user's own (FUSE)
// could block the supervisor.
func openUserDir(at int, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.EXDEV) {
		return nil, nil, fmt.Errorf("a file system is mounted on the state directory of user %s: unmount it", name)
	}
	return statDir(fd, name, err)
}

// UserDir opens a user's directory, creating it if necessary. The owner is changed last: a directory that still
// belongs to root was left by a killed supervisor.
func (s *State) UserDir(uid uint32) (*os.File, error) {
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
