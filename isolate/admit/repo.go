package admit

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
)

// A Repo is a directory that is served: its device and inode are pinned and it is held open.
type Repo struct {
	Path string
	Dir  *os.File // O_PATH
	host.Inode
	host.Owner
	Mode     uint32 // permission bits; set when its jail is built
	FSType   int64  // its file system's magic number; set when its jail is built
	ReadOnly bool   // it was passed from a read-only mount
	Common   *Repo  // the git directory that it is a worktree of, or nil
	probes   *probe.Prober
	payer    uint32 // the payer of the peer for whom it was pinned; closing it counts on this user
	forget   func() // see Prober.Hold; nil until it was inspected
}

// Snapshot returns a copy that says what the repository is, also when it has been closed. It must not be closed.
func (r *Repo) Snapshot() *Repo {
	c := &Repo{Path: r.Path, Dir: r.Dir, Inode: r.Inode, Owner: r.Owner}
	if r.Common != nil {
		c.Common = r.Common.Snapshot()
	}
	return c
}

// Close also accepts a repository without a descriptor, as the one of a session that imports.
func (r *Repo) Close() {
	if r.forget != nil {
		r.forget()
		r.forget = nil
	}
	if r.Dir != nil {
		r.probes.Discard(r.payer, r.Dir)
	}
	if r.Common != nil {
		r.Common.Close()
	}
}

// CheckUnmoved refuses a repository that is no longer at its path: an overlay continues to show the contents of a
// removed directory, and its successor at the path would never be seen.
func (r *Repo) CheckUnmoved() error {
	if r.Dir == nil {
		return nil
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(r.Dir.Fd())))
	if err != nil {
		return refuseRepo(r.Path, err)
	}
	if real != r.Path {
		return &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q was removed, renamed or replaced since the session was opened", r.Path),
			Hint:    "close this session and open a new one; then corral changes shows what was changed behind the closed one's overlay",
		}
	}
	return nil
}

// Identity returns what distinguishes the repository from others.
func (r *Repo) Identity() Identity {
	return Identity{r.Inode, r.Owner, r.ReadOnly, r.Path}
}

func refuseRepo(path string, err error) error {
	if errors.As(err, new(*job.Refusal)) {
		return err
	}
	refusal := &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q: %v", path, host.UnwrapErrno(err))}
	var link *directory.LinkError
	switch {
	case errors.Is(err, unix.ENOENT):
		refusal.Message = fmt.Sprintf("no directory %q", path)
	case errors.Is(err, unix.ENOTDIR):
		refusal.Message = fmt.Sprintf("%q is not a directory", path)
	case errors.As(err, &link):
		refusal.Errno, refusal.Message = int(unix.ELOOP), link.Error()
		refusal.Hint = directory.LinkHint
	}
	return refusal
}

// Clone makes a detached mount of the repository in which its owner appears as the job's host user and all other
// owners as nobody: files of the owner are the job's, and files that the job creates are the owner's
// (mount_setattr(2), MOUNT_ATTR_IDMAP). Mounts below the repository are not part of it.
func (r *Repo) Clone(userns *os.File, readOnly bool) (*os.File, error) {
	readOnly = readOnly || r.ReadOnly
	fd, err := unix.OpenTree(int(r.Dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %q: %w", r.Path, err)
	}
	mount := os.NewFile(uintptr(fd), r.Path)
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		// Later mounts below the repository on the host would propagate here without the id map and the flags.
		Propagation: unix.MS_PRIVATE,
		Userns_fd:   uint64(userns.Fd()),
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		mount.Close()
		return nil, r.refuseIDMap(err)
	}
	return mount, nil
}

// Inspect inspects a repository, and the git directory that it is a worktree of.
func (s *Served) Inspect(user uint32, r *Repo) error {
	for ; r != nil; r = r.Common {
		if err := s.inspectOne(user, r); err != nil {
			return err
		}
	}
	return nil
}

// inspectOne records mode and file system of the repository, before anything is built on it.
func (s *Served) inspectOne(user uint32, r *Repo) error {
	found, err := s.probes.FileSystem(user, r.Dir)
	if err != nil {
		return refuseRepo(r.Path, err)
	}
	r.Mode, r.FSType = found.Mode&0o777, found.FSType
	if r.forget == nil {
		r.forget = s.probes.Hold(found)
	}
	return nil
}

// refuseIDMap names the file system and the remedy if the kernel cannot map ids on it.
func (r *Repo) refuseIDMap(err error) error {
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount_setattr %q: %w", r.Path, err)
	}
	return &job.Refusal{
		Step:    "repo",
		Errno:   int(unix.EINVAL),
		Message: fmt.Sprintf("%q is on %s, which this kernel cannot mount with mapped user ids", r.Path, fileSystem(r.FSType)),
		Hint:    "keep the repository on ext4, xfs, btrfs or, from Linux 6.3, tmpfs; copy a shared folder of a virtual machine there",
	}
}

// fileSystems names file systems, by statfs(2)'s magic number, that do not support id-mapped mounts on some supported
// kernel.
var fileSystems = map[int64]string{
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
	unix.FUSE_SUPER_MAGIC: "fuse or virtiofs", unix.V9FS_MAGIC: "9p", unix.SMB2_SUPER_MAGIC: "smb",
	unix.CIFS_SUPER_MAGIC: "cifs", unix.RAMFS_MAGIC: "ramfs", unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs",
	0x786f4256: "vboxsf", 0xf15f: "ecryptfs", 0x2fc12fc1: "zfs",
}

func fileSystem(magic int64) string {
	if name, ok := fileSystems[magic]; ok {
		return name
	}
	return fmt.Sprintf("a file system of type %#x", magic)
}

// A Identity distinguishes a repository from another one that had the same path.
type Identity struct {
	host.Inode
	host.Owner      // id maps are made for it
	readOnly   bool // the mount is read-only for these clients
	Path       string
}
