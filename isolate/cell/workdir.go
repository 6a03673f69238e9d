package cell

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// spares are unused directories beside the work directory of an overlay that can be kept. They reserve the space that
// mounting the overlay on a full layer takes: the kernel's feature tests at mount time need more than the previous
// mount left.
var spares = [...]string{"spare-1", "spare-2"}

// freshWork creates an overlay's work directory. On a layer that was kept it exists, and there may be no room for
// another one: then the marker that keeps an overlay mounted volatile from being mounted again is removed from it
// (overlayfs.rst, "Volatile mount").
func (j *Jail) freshWork(name string) error {
	path := filepath.Join(j.layer.Path(), name)
	err := unix.Mkdir(path, 0o700)
	if errors.Is(err, unix.EEXIST) && j.session.Resumed {
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

// makeSpares reserves space for the next mount of an overlay, once it is mounted and before any job runs in it.
func (j *Jail) makeSpares(name string) error {
	if name != "repo" {
		return nil // only the repository's overlay can be kept
	}
	for _, spare := range spares {
		err := unix.Mkdir(filepath.Join(j.layer.Path(), name, spare), 0o700)
		if errors.Is(err, unix.ENOSPC) && j.session.Resumed {
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
