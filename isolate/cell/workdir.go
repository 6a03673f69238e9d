package cell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/layer"
)

// Contents of a session's layer:
//
//	repo/upper, repo/work    the overlay over the repository
//	repo/base                which state of the repository the overlay is relative to; no job sees it
//	common/upper, work       the overlay over the git directory that the repository is a worktree of
//	home, tmp                the home directory and /tmp of a session without a root of its own
//	root                     the root of a session that has one: the tree itself, or
//	root/upper, root/work    the overlay over an imported root file system
//	dirs/N/upper, work       the overlays over system directories of the host
//
// Everything except the work directories belongs to the session's user.
const (
	jailOwner = layer.UID     // the jail's root, as stored on a layer
	userOwner = layer.UID + 1 // the session's user, as stored on a layer
)

// A layerDir is the directory where a session's layer is mounted.
type layerDir struct {
	path    string
	resumed bool // the layer was kept, so it has directories already
}

// spares are unused directories beside the work directory of an overlay that can be kept. They reserve the space that
// mounting the overlay on a full layer takes: the kernel's feature tests at mount time need more than the previous
// mount left.
var spares = [...]string{"spare-1", "spare-2"}

// freshWork creates an overlay's work directory. On a layer that was kept it exists, and there may be no room for
// another one: then the marker that keeps an overlay mounted volatile from being mounted again is removed from it
// (overlayfs.rst, "Volatile mount").
func (d layerDir) freshWork(name string) error {
	path := filepath.Join(d.path, name)
	err := unix.Mkdir(path, 0o700)
	if errors.Is(err, unix.EEXIST) && d.resumed {
		for _, spare := range spares {
			err := unix.Rmdir(filepath.Join(filepath.Dir(path), spare))
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "rmdir", Path: spare, Err: err}
			}
		}
		return forgetVolatile(path)
	}
	if err != nil {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return setOwner(path, jailOwner, 0o700)
}

// makeKept makes the directory of a session's base, and reserves space for the next mount of an overlay, once it is mounted and
// before any job runs in it.
func (d layerDir) makeKept(name string) error {
	if name != "repo" {
		return nil // only the repository's overlay can be kept
	}
	err := d.ownedDir(name+"/base", 0o700)
	if err != nil && (!errors.Is(err, unix.ENOSPC) || !d.resumed) { // a full layer that an earlier version kept has none
		return err
	}
	for _, spare := range spares {
		err := unix.Mkdir(filepath.Join(d.path, name, spare), 0o700)
		if errors.Is(err, unix.ENOSPC) && d.resumed {
			return nil // this mount succeeded and can be used
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: spare, Err: err}
		}
	}
	return nil
}

// forgetVolatile removes work/incompat/volatile/dirty from a work directory. The kernel made it, and jobs cannot
// reach it.
func forgetVolatile(path string) error {
	chain := []string{path, "work", "incompat", "volatile"}
	at := unix.AT_FDCWD
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for _, name := range chain {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: name, Err: err}
		}
		open, at = append(open, fd), fd
	}
	names, flags := append(chain[1:], "dirty"), 0
	for n := len(open) - 1; n >= 1; n-- { // overlayfs creates work itself again
		if err := unix.Unlinkat(open[n], names[n], flags); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "unlink", Path: names[n], Err: err}
		}
		flags = unix.AT_REMOVEDIR
	}
	return nil
}

// ownedDir makes a directory of the layer that belongs to the session's user; missing parents are made for the jail's
// root. On a layer that was kept the directory exists already.
func (d layerDir) ownedDir(name string, mode uint32) error { return d.dirOf(userOwner, name, mode) }

// dirOf is ownedDir for a directory that belongs to owner, jailOwner or userOwner.
func (d layerDir) dirOf(owner int, name string, mode uint32) error {
	path := filepath.Join(d.path, name)
	if err := d.makeParents(name); err != nil {
		return err
	}
	if err := unix.Mkdir(path, mode); err != nil {
		if errors.Is(err, unix.EEXIST) && d.resumed {
			return nil
		}
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return setOwner(path, owner, mode)
}

// makeParents makes the parent directories of a path in the layer.
func (d layerDir) makeParents(name string) error {
	at := d.path
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		switch err := unix.Mkdir(at, 0o711); {
		case errors.Is(err, unix.EEXIST):
		case err != nil:
			return &os.PathError{Op: "mkdir", Path: at, Err: err}
		default:
			if err := setOwner(at, jailOwner, 0o711); err != nil {
				return err
			}
		}
	}
	return nil
}

func setOwner(path string, id int, mode uint32) error {
	if err := unix.Chmod(path, mode); err != nil { // the umask is stricter
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if err := unix.Lchown(path, id, id); err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}
