package isolate

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

// A repo is a directory that is served: its device and inode are pinned and it is held open.
type repo struct {
	path string
	dir  *os.File // O_PATH
	host.Inode
	host.Owner
	mode     uint32 // permission bits; set when its jail is built
	fs       int64  // its file system's magic number; set when its jail is built
	readOnly bool   // it was passed from a read-only mount
	common   *repo  // the git directory of which it is a worktree, or nil
	probes   *probe.Prober
	payer    uint32 // the payer of the peer for whom it was pinned; closing it counts on this user
}

// close also accepts a repository without a descriptor, see importDir.
func (r *repo) close() {
	if r.dir != nil {
		r.probes.Discard(r.payer, r.dir)
	}
	if r.common != nil {
		r.common.close()
	}
}

// checkUnmoved refuses a repository that is no longer at its path: an overlay continues to show the contents of a
// removed directory, and its successor at the path would never be seen.
func (r *repo) checkUnmoved() error {
	if r.dir == nil {
		return nil
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(r.dir.Fd())))
	if err != nil {
		return refuseRepo(r.path, err)
	}
	if real != r.path {
		return &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q was removed, renamed or replaced since the session was opened", r.path),
			Hint:    "close this session and open a new one; then corral changes shows what was changed behind the closed one's overlay",
		}
	}
	return nil
}

func (r *repo) identity() repoIdentity {
	return repoIdentity{r.Inode, r.Owner, r.readOnly, r.path}
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

// clone makes a detached mount of the repository in which its owner appears as the job's host user and all other
// owners as nobody: files of the owner are the job's, and files that the job creates are the owner's
// (mount_setattr(2), MOUNT_ATTR_IDMAP). Mounts below the repository are not part of it.
func (r *repo) clone(userns *os.File, readOnly bool) (*os.File, error) {
	readOnly = readOnly || r.readOnly
	fd, err := unix.OpenTree(int(r.dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %q: %w", r.path, err)
	}
	mount := os.NewFile(uintptr(fd), r.path)
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

// inspectAll inspects a repository, and the git directory of which it is a worktree.
func (s *served) inspectAll(user uint32, r *repo) error {
	for ; r != nil; r = r.common {
		if err := s.inspect(user, r); err != nil {
			return err
		}
	}
	return nil
}

// inspect records mode and file system of the repository, before anything is built on it.
func (s *served) inspect(user uint32, r *repo) error {
	found, err := s.probes.FileSystem(user, r.dir)
	if err != nil {
		return refuseRepo(r.path, err)
	}
	r.mode, r.fs = found.Mode&0o777, found.FSType
	return nil
}

// refuseIDMap names the file system and the remedy if the kernel cannot map ids on it.
func (r *repo) refuseIDMap(err error) error {
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount_setattr %q: %w", r.path, err)
	}
	return &job.Refusal{
		Step:    "repo",
		Errno:   int(unix.EINVAL),
		Message: fmt.Sprintf("%q is on %s, which this kernel cannot mount with mapped user ids", r.path, fileSystem(r.fs)),
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

// A repoIdentity distinguishes a repository from another one that had the same path.
type repoIdentity struct {
	host.Inode
	host.Owner      // id maps are made for it
	readOnly   bool // the mount is read-only for these clients
	path       string
}
