package rootfs

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// Names inside a jail, independent of those of the host.
const (
	// User is the name of every UID of [Options.JobUIDs], and of its group.
	User = "job"
	// HomeDir is the home directory of User. It lies in the private /home and is created there with mode 0700, owned
	// by the job's UID.
	HomeDir = "/home/job"
	// Hostname is the content of /etc/hostname, and resolves to 127.0.0.1 by /etc/hosts; the jail's UTS namespace
	// should have it too.
	Hostname = "jail"
)

// Errors of requests that cannot be met, wrapped with the reason and a hint.
var (
	// ErrPath is a path that is not absolute, not clean, or not printable.
	ErrPath = errors.New("not a usable path")
	// ErrRepo is a path where no repository may be mounted.
	ErrRepo = errors.New("refused as a repository")
	// ErrToolchain is a directory that cannot be a toolchain: missing, a link, unreadable for jobs, of the system, or
	// overlapping the repository.
	ErrToolchain = errors.New("refused as a toolchain")
	// ErrIDs is a range of UIDs that /etc/passwd cannot name.
	ErrIDs = errors.New("unusable range of job UIDs")
	// ErrHost is a host tree from which no root can be built.
	ErrHost = errors.New("unusable host tree")
	// ErrEntry is an entry that [Tree.Write] rejects.
	ErrEntry = errors.New("malformed entry")
)

// Entry is a node to create in the jail's root.
type Entry struct {
	Path string      // absolute and clean, never "/"
	Mode fs.FileMode // type (directory, link or regular), permissions, sticky
	Link string      // the target of a link, not checked
	Data []byte      // the content of a regular file; shared, must not be changed
}

// Bind is a host directory to bind into the jail's root, read-only, nosuid and nodev. If it is bound with the mounts
// below it (such as a separate /usr/local), these attributes must be set recursively, mount_setattr(2).
type Bind struct {
	Source string // on the host, without links when it was checked; see Options.Hold
	Target string // in the jail; the mount point is among the entries
}

// Skip is a file that matches a row of the table but was not copied.
type Skip struct {
	Path   string // as a job would see it
	Reason string // a phrase: "not owned by root"
}

// Tree is the root of a jail as data. The zero Tree is an empty root.
type Tree struct {
	Entries []Entry // in the order of creation, each path once
	Binds   []Bind  // in the order of mounting, after the entries
	Late    []Bind  // mounted in each job over private directories, from targets of Binds; without Source, a directory to create
	Skipped []Skip  // for reports: files that a job may miss, and why
}

// Dir is a directory that is private to every job: a new tmpfs, nosuid and nodev, with limits of bytes and inodes.
type Dir struct {
	Path   string
	Mode   fs.FileMode
	Reason string
}

// Private lists the private directories in the order of mounting. The mount points are among the entries of [Host] or
// created by [WriteDev]. /run is not one of them: a job could write to nothing in it, so an empty read-only directory
// suffices, and saves each job a mount.
var Private = []Dir{
	{"/tmp", fs.ModeSticky | 0o777, "temporary files, which would leak to other jobs and collide with theirs"},
	{"/var/tmp", fs.ModeSticky | 0o777, "temporary files that programs expect to survive a reboot"},
	{"/home", 0o711, "contains " + HomeDir + "; the homes of the host contain keys and tokens"},
	{"/dev/shm", fs.ModeSticky | 0o777, "POSIX shared memory and semaphores, shm_overview(7)"},
}

// below reports whether p is dir or lies in it. Both are absolute and clean.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// printable reports whether s has no control characters and no NUL. Normal files of /etc have none, so a name with
// them is suspicious.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// maxPath is PATH_MAX of limits.h without the terminating NUL.
const maxPath = 4095

// badPath returns what is wrong with the form of an absolute path, "" if nothing.
func badPath(p string) string {
	switch {
	case p == "":
		return "it is empty"
	case !path.IsAbs(p):
		return "it is not absolute (hint: give the path from /)"
	case path.Clean(p) != p:
		return "it has empty, . or .. components (hint: " + path.Clean(p) + ")"
	case strings.IndexByte(p, 0) >= 0:
		return "it has a NUL byte"
	case len(p) > maxPath:
		return "it is longer than 4095 bytes"
	}
	return ""
}
