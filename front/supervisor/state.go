package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/isolate/client/embed"
)

// StateDir is the default state directory of a supervisor. Below it, users has a directory of each user.
const StateDir = "/var/lib/corral"

// stateHome returns $XDG_STATE_HOME/corral, by default ~/.local/state/corral. The XDG Base Directory Specification says
// that a relative path is to be ignored.
func stateHome() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		h := os.Getenv("HOME")
		if !filepath.IsAbs(h) {
			return "", errors.New("the home directory is unknown\nhint: set XDG_STATE_HOME")
		}
		dir = filepath.Join(h, ".local", "state")
	}
	return filepath.Join(dir, "corral"), nil
}

// OpenUserState opens the directory in which a user's front-ends keep their state, and creates it if necessary. With an
// embedded supervisor they use a directory that it makes for each user instead.
func OpenUserState() (*os.File, error) {
	dir, err := stateHome()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, owner, err := openState(dir)
	if err == nil && owner != os.Geteuid() {
		err = errors.Join(fmt.Errorf("%s must belong to the current user, but belongs to user %d", dir, owner), f.Close())
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openState opens a directory of state, which must not be a link and must not be accessible to group or others, and
// returns its owner.
func openState(dir string) (*os.File, int, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && st.Mode&0o077 != 0 {
		err = fmt.Errorf("%s must have mode 0700, but has %04o", dir, st.Mode&0o777)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, int(st.Uid), nil
}

// OpenExistingState opens the existing directories of state from which stored output is read: the named one, or this user's in
// users (where a supervisor has one for each user) and in the home directory. It creates none, and drops root. Root
// becomes the user who called sudo, else the only user that has output there, or that has the handle's output.
func OpenExistingState(named, users, handle string) (states []*os.File, err error) {
	var paths []string
	switch {
	case named != "":
		paths = []string{named}
	case embed.Root():
		dir, err := rootsUser(users, handle)
		if err != nil {
			return nil, errors.Join(err, embed.Drop())
		}
		paths = []string{dir}
	default:
		paths = []string{filepath.Join(users, strconv.Itoa(os.Geteuid()))}
		if home, err := stateHome(); err == nil {
			paths = append(paths, home)
		}
	}
	owner := -1
	for _, p := range paths {
		var f *os.File
		var uid int
		open := func() (err error) {
			f, uid, err = openState(p)
			return err
		}
		if named != "" { // otherwise the output of every user could be read through sudo
			err = embed.Hint(open())
		} else {
			err = embed.Reading.Do(open)
		}
		switch {
		case errors.Is(err, os.ErrNotExist) && named == "":
		case err != nil:
			return nil, errors.Join(err, becomeOwner(owner))
		default:
			states, owner = append(states, f), uid
		}
	}
	return states, becomeOwner(owner)
}

// rootsUser returns the directory of the user who called sudo, else of the only user that has output, or of the user
// that has the handle's output.
func rootsUser(users, handle string) (string, error) {
	if who, err := embed.Choose(embed.Nobody()); err == nil && who != embed.Nobody() {
		return filepath.Join(users, strconv.Itoa(who.UID)), nil
	}
	list, err := os.ReadDir(users)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var found []string
	for _, e := range list {
		output := filepath.Join(users, e.Name(), "artifacts")
		if _, err := os.Lstat(output); err != nil {
			continue
		}
		found = append(found, filepath.Join(users, e.Name()))
		if filepath.Base(handle) != handle {
			continue
		}
		if _, err := os.Lstat(filepath.Join(output, handle)); err == nil && handle != "." && handle != ".." {
			return found[len(found)-1], nil
		}
	}
	switch len(found) {
	case 0:
		return filepath.Join(users, "0"), nil // never exists: root itself stores no output
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d users have output in %s\nhint: choose one: --state %s", len(found), users, found[0])
}

// becomeOwner drops root to the owner of the opened directories. Their group does not matter, because only the owner has
// access.
func becomeOwner(owner int) error {
	switch {
	case !embed.Root():
		return nil
	case owner < 0:
		return embed.Drop()
	case owner == 0:
		return errors.Join(errors.New("the directory belongs to root, which stores no output"), embed.Drop())
	}
	who, err := embed.Choose(embed.Nobody())
	if err != nil || who.UID != owner {
		who = embed.Identity{UID: owner, GID: embed.Nobody().GID}
	}
	return who.Become()
}

// AsOperator runs open with root's rights if dir is the supervisor's state directory, or another that is root's alone; otherwise with
// those of the user who called sudo.
func AsOperator(dir string, open func() error) error {
	if filepath.Clean(dir) == StateDir {
		return embed.Reading.Do(open)
	}
	return embed.Reading.At(dir, open)
}
