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

// A group is the directory of one group in one hierarchy. It is looked up relative to an open directory, that of the
// jail: this saves the path lookup from the root in each of about thirty calls per job, and the directory stays the
// same whatever is renamed or mounted above it.
type group struct {
	at    int    // the directory that name is relative to, or AT_FDCWD
	name  string // one path element, or the full path
	path  string // the full path, for messages and for calls that need not be fast
	point string // the mount point of its hierarchy
}

// groupAt returns the group at a path.
func groupAt(path string) group { return group{at: unix.AT_FDCWD, name: path, path: path} }

// noGroup returns a group on which each call fails.
func noGroup() group { return group{at: -1, name: "."} }

// open opens a file of the group. It never creates one.
func (d group) open(file string, flags int) (int, error) {
	fd, err := openAt(d.at, d.name+"/"+file, flags)
	return fd, d.failed("open", file, err)
}

// openDir opens the directory itself with O_PATH, as a starting point for lookups.
func (d group) openDir() (int, error) {
	fd, err := openAt(d.at, d.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	return fd, d.failed("open", "", err)
}

// write writes value to a file of the group in a single call, as the kernel requires.
func (d group) write(file, value string) error {
	fd, err := d.open(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return d.failed("write", file, retryEINTR(func() error { _, err := unix.Write(fd, []byte(value)); return err }))
}

func (d group) make() error {
	return d.failed("mkdir", "", retryEINTR(func() error { return unix.Mkdirat(d.at, d.name, 0o755) }))
}

// remove removes the directory, which must have neither a process nor a child group. Its error is a bare [unix.Errno].
func (d group) remove() error {
	return retryEINTR(func() error { return unix.Unlinkat(d.at, d.name, unix.AT_REMOVEDIR) })
}

// chown makes owner the owner of a file of the group.
func (d group) chown(file string, owner int) error {
	return d.failed("chown", file, retryEINTR(func() error {
		return unix.Fchownat(d.at, d.name+"/"+file, owner, -1, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// failed adds the operation and the path to err; "" stands for the directory. It returns nil if err is nil.
func (d group) failed(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, file), Err: err}
}

// processes returns the processes of the group, without those of its children. A process outside the caller's PID
// namespace is listed as 0.
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

// join moves a process with all its threads, but without its children, into the group.
func (d group) join(pid int) error {
	var err error
	for range 5 {
		err = d.write(procsFile, strconv.Itoa(pid))
		if !errors.Is(err, unix.EINVAL) {
			break
		}
		// The cpu controller of kernels before 6.1 refuses a process that is being forked and has never run.
		time.Sleep(time.Millisecond)
	}
	return err
}

// openAt opens a file. Its error is a bare [unix.Errno].
func openAt(at int, name string, flags int) (int, error) {
	fd := -1
	err := retryEINTR(func() (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// retryEINTR repeats a call that was interrupted by a signal.
func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A jailDirs holds the directories of a jail open while the jail or one of its jobs uses them: one descriptor per
// hierarchy, whatever the number of jobs.
type jailDirs struct {
	groups []group // the jail's own, by path
	fds    []int   // in the order of groups
	users  atomic.Int64
}

// openJailDirs opens the directories, with a reference count of one.
func openJailDirs(groups []group) (*jailDirs, error) {
	s := &jailDirs{groups: groups}
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

// hold adds a reference, unless the directories are closed already, which it reports.
func (s *jailDirs) hold() bool {
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

// release drops a reference and closes the directories with the last one.
func (s *jailDirs) release() {
	if s.users.Add(-1) > 0 {
		return
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// group returns the child called name of the n-th directory.
func (s *jailDirs) group(n int, name string) group {
	d := s.groups[n]
	return group{at: s.fds[n], name: name, path: d.path + "/" + name, point: d.point}
}
