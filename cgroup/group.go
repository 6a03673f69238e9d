package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A group is the directory of one group in one hierarchy. It is found from a directory that is open, as a jail's are:
// that saves the way from the root for each of some thirty calls that a job costs, and it stays the same directory
// whatever is renamed or mounted above it.
type group struct {
	at    int    // the directory that name starts from, or AT_FDCWD
	name  string // of one element, or the whole path
	path  string // the whole path, for what is said of it and for what is in no hurry
	point string // where its hierarchy is mounted
}

// groupAt is a group that is found by its path.
func groupAt(path string) group { return group{at: unix.AT_FDCWD, name: path, path: path} }

// nowhere is no group: each call fails.
func nowhere() group { return group{at: -1, name: "."} }

// open opens a file of the group; one that the kernel has not made is not created.
func (d group) open(file string, flags int) (int, error) {
	fd, err := openAt(d.at, d.name+"/"+file, flags)
	return fd, d.failed("open", file, err)
}

// openDir opens the directory itself, for no more than to start from.
func (d group) openDir() (int, error) {
	fd, err := openAt(d.at, d.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	return fd, d.failed("open", "", err)
}

// write writes to a file of the group in one call, as the kernel wants it.
func (d group) write(file, value string) error {
	fd, err := d.open(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return d.failed("write", file, again(func() error { _, err := unix.Write(fd, []byte(value)); return err }))
}

// make makes the directory.
func (d group) make() error {
	return d.failed("mkdir", "", again(func() error { return unix.Mkdirat(d.at, d.name, 0o755) }))
}

// remove removes the directory, in which there is neither a process nor a group. Its error is the number alone.
func (d group) remove() error {
	return again(func() error { return unix.Unlinkat(d.at, d.name, unix.AT_REMOVEDIR) })
}

// chown gives a file of the group to a user.
func (d group) chown(file string, owner int) error {
	return d.failed("chown", file, again(func() error {
		return unix.Fchownat(d.at, d.name+"/"+file, owner, -1, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// failed makes the error of a call on a file of the group, or on the directory; nil of nil.
func (d group) failed(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, file), Err: err}
}

// processes returns the processes of the group, without those of its children. One that is in no PID namespace of ours
// is 0.
func (d group) processes() ([]int, error) {
	fd, err := d.open(procsFile, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := readOn(fd, make([]byte, 512), true)
	if err != nil {
		return nil, d.failed("read", procsFile, err)
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(d.path, procsFile), err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// join moves a process to the group, with all its threads and without its children.
func (d group) join(pid int) error {
	var err error
	for range 5 {
		err = d.write(procsFile, strconv.Itoa(pid))
		if !errors.Is(err, unix.EINVAL) {
			break
		}
		// The cpu controller of kernels before 6.1 refuses a process that is being forked and was never run.
		time.Sleep(time.Millisecond)
	}
	return err
}

// openAt opens a file. Its error is the number alone.
func openAt(at int, name string, flags int) (int, error) {
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// again makes a call until no signal interrupts it.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A stand is a jail's directories, open while the jail or a job of it has a use for them: a descriptor for each
// hierarchy, however many jobs there are.
type stand struct {
	groups []group // a jail's own, by path
	fds    []int   // of the same
	users  atomic.Int64
}

// newStand opens directories, for one user.
func newStand(groups []group) (*stand, error) {
	s := &stand{groups: groups}
	s.users.Store(1)
	for _, d := range groups {
		fd, err := d.openDir()
		if err != nil {
			s.release()
			return nil, err
		}
		s.fds = append(s.fds, fd)
	}
	return s, nil
}

// hold reports whether the directories are still open, and keeps them so until release.
func (s *stand) hold() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release closes the directories for the last one who held them.
func (s *stand) release() {
	if s.users.Add(-1) > 0 {
		return
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// group returns the n-th directory's child of that name.
func (s *stand) group(n int, name string) group {
	d := s.groups[n]
	return group{at: s.fds[n], name: name, path: d.path + "/" + name, point: d.point}
}
