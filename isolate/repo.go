package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/rootfs"
)

// A repo is a directory that is served: pinned by its device and inode when it was registered, held open since.
type repo struct {
	path     string
	dir      *os.File // O_PATH
	dev, ino uint64
	uid, gid uint32 // its owner: the only ids of the host that a job's user is mapped to
	mode     uint32 // permission bits; set when its jail is built
	fs       int64  // its file system's magic number; likewise
	common   *repo  // the git directory that it is a worktree of, or nil
}

// pin opens path for a user, which must be absolute and clean and have no link in it, as the directory with this device and
// inode. Zero dev and ino stand for whichever is there.
func (s *Supervisor) pin(user uint32, path string, dev, ino uint64) (*repo, error) {
	dir, id, err := s.probes.openDir(user, path)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	r := &repo{path: path, dir: dir, dev: id.dev, ino: id.ino, uid: id.uid, gid: id.gid}
	if ino != 0 && (r.dev != dev || r.ino != ino) {
		r.close()
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q is another directory for the supervisor than for you", path),
			Hint:    "it was replaced meanwhile, or is a mount that only your session sees",
		}
	}
	return r, nil
}

// close takes a repository without a descriptor, too: see importDir.
func (r *repo) close() {
	r.dir.Close()
	if r.common != nil {
		r.common.close()
	}
}

func (r *repo) identity() repoIdentity { return repoIdentity{r.dev, r.ino, r.uid, r.gid, r.path} }

func (r *repo) key(profile, session string) jailKey {
	key := jailKey{repoIdentity: r.identity(), profile: profile, session: session}
	if r.common != nil {
		key.common = r.common.identity()
	}
	return key
}

func refuseRepo(path string, err error) error {
	if errors.As(err, new(*job.Refusal)) {
		return err
	}
	refusal := &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q: %v", path, err)}
	switch {
	case errors.Is(err, unix.ENOENT):
		refusal.Message = fmt.Sprintf("no directory %q", path)
	case errors.Is(err, unix.ENOTDIR):
		refusal.Message = fmt.Sprintf("%q is no directory", path)
	case errors.Is(err, unix.ELOOP):
		refusal.Message = fmt.Sprintf("%q goes through a symbolic link", path)
		refusal.Hint = "name the directory by its real path"
	}
	return refusal
}

// serves decides whether a client may have jobs in the directory it asked for, and pins it. A client names one the
// operator serves by its path, or passes a descriptor: then its inode is one the operator serves, or it must be the
// client's own.
func (s *Supervisor) serves(peer Peer, path string, dir *os.File) (*repo, error) {
	if dir == nil {
		return s.servesPath(peer, path)
	}
	id, err := s.probes.identify(peer.UID, dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	if id.mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, &job.Refusal{Step: "repo", Message: "what was passed as the repository is no directory"}
	}
	// Who names a directory that is served, and passes it, need not be asked by which path it was opened: that takes longer
	// than all else here, and it could have named it alone.
	if s.config.pinned[path] == id.inode && s.config.servesTo(peer, path) {
		if r, err := s.pin(peer.UID, path, id.dev, id.ino); err == nil {
			return r, nil
		}
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	served := s.config.servesTo(peer, real)
	switch {
	case served:
		if s.config.pinned[real] != id.inode {
			return nil, &job.Refusal{
				Step:    "repo",
				Message: fmt.Sprintf("%q is another directory than the one the operator serves", real),
				Hint:    "it was replaced since the supervisor was started: restart it to serve the new one",
			}
		}
	case peer.Embedded, !s.config.Own:
		return nil, notServed(real)
	case id.uid != peer.UID:
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to user %d, not to you (user %d)", real, id.uid, peer.UID),
			Hint:    "the operator can serve it to you in the supervisor's configuration",
		}
	}
	if !served { // what is was checked by New
		if err := s.checkPath(real); err != nil {
			return nil, err
		}
	}
	return s.pin(peer.UID, real, id.dev, id.ino)
}

func (s *Supervisor) servesPath(peer Peer, path string) (*repo, error) {
	if !s.config.servesTo(peer, path) {
		return nil, notServed(path)
	}
	known := s.config.pinned[path]
	return s.pin(peer.UID, path, known.dev, known.ino)
}

func notServed(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the supervisor does not serve %q", path),
		Hint:    "name it with --repo when the supervisor is started, or in its configuration",
	}
}

// checkPath refuses directories that are nobody's repository, whoever asks.
func (s *Supervisor) checkPath(path string) error {
	if len(path) > 4000 || strings.HasSuffix(path, " (deleted)") || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return &job.Refusal{Step: "repo", Message: fmt.Sprintf("%.80q is no path of a directory that can be served", path)}
	}
	if err := rootfs.CheckRepoPath(path, s.refused...); err != nil {
		return &job.Refusal{Step: "repo", Message: err.Error()}
	}
	return nil
}

// clone makes a detached mount of the repository in which its owner appears as the host user id and nobody else as
// anyone: files of the owner are the job's, files the job makes are the owner's (mount_setattr(2), MOUNT_ATTR_IDMAP).
// Mounts below the repository are not in it.
func (r *repo) clone(userns *os.File, readOnly bool) (*os.File, error) {
	fd, err := unix.OpenTree(int(r.dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %q: %w", r.path, err)
	}
	mount := os.NewFile(uintptr(fd), r.path)
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		// What the host mounts below the repository meanwhile would come without the map and the flags.
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

// mount makes a mount of the repository for the slot's job. It is not made ahead: it has the flags that the host's mount has
// when the job comes, and cannot be made of one that the operator has taken away.
func (sl *slot) mount(readOnly bool) (*os.File, error) {
	return sl.jail.repo.clone(sl.idmap, readOnly)
}

// inspectAll inspects a repository, and what it is a worktree of.
func (s *Supervisor) inspectAll(user uint32, r *repo) error {
	for ; r != nil; r = r.common {
		if err := s.inspect(user, r); err != nil {
			return err
		}
	}
	return nil
}

// inspect looks at the repository's file system for a user, before anything is built on it.
func (s *Supervisor) inspect(user uint32, r *repo) error {
	found, err := s.probes.fileSystem(user, r.dir)
	if err != nil {
		return refuseRepo(r.path, err)
	}
	r.mode, r.fs = found.Mode&0o777, found.FSType
	return nil
}

// refuseIDMap names the file system and the remedy when the kernel cannot map ids on it.
func (r *repo) refuseIDMap(err error) error {
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount_setattr %q: %w", r.path, err)
	}
	return &job.Refusal{
		Step:    "repo",
		Errno:   int(unix.EINVAL),
		Message: fmt.Sprintf("%q lies on %s, on which this kernel cannot map user ids", r.path, fileSystem(r.fs)),
		Hint:    "keep the repository on ext4, xfs, btrfs or, from Linux 6.3, tmpfs; a shared folder of a virtual machine has to be copied into it",
	}
}

// fileSystems names those that refuse id-mapped mounts on some kernel of ours, by statfs(2)'s magic number.
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
