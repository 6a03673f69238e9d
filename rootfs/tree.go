package rootfs

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// Names a job finds for itself, whatever the host calls them.
const (
	// User is the name of every uid of [Options.JobUIDs], and of its group.
	User = "job"
	// HomeDir is the home directory of User. It lies in the private /home
	// and is made there, owned by the job's uid, with mode 0700.
	HomeDir = "/home/job"
	// Hostname is what /etc/hostname says and /etc/hosts resolves to
	// 127.0.0.1; the jail's UTS namespace should carry it too.
	Hostname = "jail"
)

// Errors of a request that can not be met. Each comes wrapped in a sentence
// that says why, with a hint.
var (
	// ErrPath is a path that is not absolute, not clean, or not printable.
	ErrPath = errors.New("not a usable path")
	// ErrRepo is a place that no repository may be mounted at.
	ErrRepo = errors.New("refused as a repository")
	// ErrToolchain is a directory that is no toolchain: absent, a link,
	// unreadable for a job, of the system, or overlapping the repository.
	ErrToolchain = errors.New("refused as a toolchain")
	// ErrIDs is a range of uids that /etc/passwd can not name.
	ErrIDs = errors.New("unusable range of job uids")
	// ErrHost is a host tree that no root can be made of.
	ErrHost = errors.New("unusable host tree")
	// ErrEntry is an entry that [Tree.Write] does not make.
	ErrEntry = errors.New("malformed entry")
)

// Entry is one node to be made in the jail's root.
type Entry struct {
	Path string      // absolute and clean, never "/"
	Mode fs.FileMode // type (directory, link or regular), permissions, sticky
	Link string      // the target of a link, not looked at further
	Data []byte      // the content of a regular file; shared, not to be changed
}

// Bind is a host directory to be bound into the jail's root, read-only, nosuid
// and nodev. Where it is bound with what is mounted below it (a /usr/local of
// its own), these attributes must be set recursively, mount_setattr(2).
type Bind struct {
	Source string // on the host, no component a link then; see Options.Hold
	Target string // in the jail; the mount point is among the entries
}

// Skip is a file of a table's row that was not copied.
type Skip struct {
	Path   string // on the host, as a job would see it
	Reason string // half a sentence: "not owned by root"
}

// Tree is the root of a jail as data. The zero Tree is an empty root.
type Tree struct {
	Entries []Entry // in the order in which to make them, no path twice
	Binds   []Bind  // in the order in which to mount them, after the entries
	Late    []Bind  // in each job, over its private directories: of what Binds put aside, or without a Source a directory
	Skipped []Skip  // for people: what a job might miss, and why
}

// Dir is a directory that every job has for itself: a fresh tmpfs, nosuid
// and nodev, with limits of bytes and inodes.
type Dir struct {
	Path   string
	Mode   fs.FileMode
	Reason string
}

// Private is the list of [Dir] in the order of mounting. The mount points
// are among the entries of [Host] or made by [WriteDev]. /run is not one of
// them: nothing in it would be the job's to write, so an empty read-only
// directory does, and saves each job a mount.
var Private = []Dir{
	{"/tmp", fs.ModeSticky | 0o777, "temporary files; another job's would leak and collide"},
	{"/var/tmp", fs.ModeSticky | 0o777, "temporary files that programs think survive a reboot"},
	{"/home", 0o711, "holds " + HomeDir + "; the homes of the host hold keys and tokens"},
	{"/dev/shm", fs.ModeSticky | 0o777, "POSIX shared memory and semaphores, shm_overview(7)"},
}

// below reports whether p is dir or lies in it. Both are absolute and clean.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// printable reports whether s has no control characters and no NUL: nothing of
// /etc has any, so what does is not what it seems.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// maxPath is PATH_MAX without the closing NUL, limits.h.
const maxPath = 4095

// badPath says what is wrong with the form of an absolute path, "" if nothing.
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
