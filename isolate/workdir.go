package isolate

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// spares are directories that nobody uses, beside the work directory of what can be kept. A full layer has room for an
// overlay because they make it: the kernel tries out more than the one before has left.
var spares = [...]string{"spare-1", "spare-2"}

// freshWork makes a work directory. On a layer that was kept it is there, and that may have no room for another one: from
// that is taken what keeps an overlay that was volatile from being mounted again (overlayfs.rst, "Volatile mount").
func (j *jail) freshWork(name string) error {
	path := filepath.Join(j.session.layer.Path(), name)
	err := unix.Mkdir(path, 0o700)
	if errors.Is(err, unix.EEXIST) && j.session.from != "" {
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
	return own(path, jailOwner, 0o700)
}

// makeSpares makes room for the next overlay, once there is one and no job has run in it.
func (j *jail) makeSpares(name string) error {
	if name != "repo" {
		return nil // is not kept
	}
	for _, spare := range spares {
		err := unix.Mkdir(filepath.Join(j.session.layer.Path(), name, spare), 0o700)
		if errors.Is(err, unix.ENOSPC) && j.session.from != "" {
			return nil // this time it can be looked at
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: spare, Err: err}
		}
	}
	return nil
}

// forgetVolatile removes work/incompat/volatile/dirty of a work directory. The kernel made it, and no job has it.
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
	for n := len(open) - 1; n >= 1; n-- { // work itself is overlayfs's to make again
		if err := unix.Unlinkat(open[n], names[n], flags); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "unlink", Path: names[n], Err: err}
		}
		flags = unix.AT_REMOVEDIR
	}
	return nil
}
