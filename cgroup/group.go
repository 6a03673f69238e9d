package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Files of a group.
const (
	procsFile   = "cgroup.procs"
	killFile    = "cgroup.kill"
	subtreeFile = "cgroup.subtree_control"
	v2Freezer   = "cgroup.freeze"
	v1Freezer   = "freezer.state"

	eventsFile = "cgroup.events"
)

// A group is the directory of one group in one hierarchy. It is looked up relative to an open directory, that of the
// jail: this saves the path lookup from the root in each of about thirty calls per job, and the directory stays the
// same whatever is renamed or mounted above it. Its methods never create a file.
type group struct {
	at    int    // the directory that name is relative to, or AT_FDCWD
	name  string // one path element, or the full path
	Path  string // the full path, for messages and for calls that need not be fast
	Point string // the mount point of its hierarchy; "" of a group returned by groupAt
}

// groupAt returns the group at a path, with which each call looks up the whole path.
func groupAt(path string) group { return group{at: unix.AT_FDCWD, name: path, Path: path} }

// noGroup returns a group on which each call fails.
func noGroup() group { return group{at: -1, name: "."} }

// Detached returns the group for messages only: each call on it fails.
func (d group) Detached() group {
	d.at = -1
	return d
}

// Open opens a file of the group. The caller closes the descriptor.
func (d group) Open(file string, flags int) (int, error) {
	fd, err := openAt(d.at, d.name+"/"+file, flags)
	return fd, d.failed("open", file, err)
}

// OpenDir opens the directory itself with O_PATH, as a starting point for lookups. The caller closes the descriptor.
func (d group) OpenDir() (int, error) {
	fd, err := openAt(d.at, d.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	return fd, d.failed("open", "", err)
}

// Write writes value to a file of the group in a single call, as the kernel requires.
func (d group) Write(file, value string) error {
	fd, err := d.Open(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return d.failed("write", file, retryEINTR(func() error { _, err := unix.Write(fd, []byte(value)); return err }))
}

// Make creates the directory. The error wraps [fs.ErrExist] if it exists.
func (d group) Make() error {
	return d.failed("mkdir", "", retryEINTR(func() error { return unix.Mkdirat(d.at, d.name, 0o755) }))
}

// rmdir removes the directory, which must have neither a process nor a child group. Its error is a bare [unix.Errno].
func (d group) rmdir() error {
	return retryEINTR(func() error { return unix.Unlinkat(d.at, d.name, unix.AT_REMOVEDIR) })
}

// Chown makes owner the owner of a file of the group.
func (d group) Chown(file string, owner int) error {
	return d.failed("chown", file, retryEINTR(func() error {
		return unix.Fchownat(d.at, d.name+"/"+file, owner, -1, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// failed adds the operation and the path to err; "" stands for the directory. It returns nil if err is nil.
func (d group) failed(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.Path, file), Err: err}
}

// Read returns the content of a file of the group.
func (d group) Read(file string) ([]byte, error) {
	fd, err := d.Open(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := readOn(fd, make([]byte, 512), true)
	if err != nil {
		return nil, d.failed("read", file, err)
	}
	return b, nil
}

// Processes returns the processes of the group, without those of its children. A process outside the caller's PID
// namespace is listed as 0.
func (d group) Processes() ([]int, error) {
	b, err := d.Read(procsFile)
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(d.Path, procsFile), err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Join moves a process with all its threads, but without its children, into the group.
func (d group) Join(pid int) error {
	var err error
	for range 5 {
		err = d.Write(procsFile, strconv.Itoa(pid))
		if !errors.Is(err, unix.EINVAL) {
			break
		}
		// The cpu controller of kernels before 6.1 refuses a process that is being forked and has never run.
		time.Sleep(time.Millisecond)
	}
	return err
}

// openAt opens a file. Its error is a bare [unix.Errno].
//
// Files are opened, read and written with plain system calls. os.OpenFile would register each file with the runtime's
// poller, since it supports poll(2): five more calls, and a wake-up, because it always counts as ready. That doubles the
// cost of a file.
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

// gone reports whether err means that the group was removed, before or while its file was open.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
