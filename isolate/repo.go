package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
	"corral/rootfs"
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

// pin opens path, which must be absolute and clean and contain no symbolic link, for jobs of the peer. If want is not
// zero, the directory must have that inode.
func (s *Supervisor) pin(peer host.Peer, path string, want host.Inode) (*repo, error) {
	dir, id, err := s.probes.OpenDir(peer.Payer(), path)
	if errors.Is(err, unix.ELOOP) {
		err = &directory.LinkError{Path: path, Link: s.firstLink(peer.Payer(), path)}
	}
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	r := &repo{path: path, dir: dir, Inode: id.Inode, Owner: host.Owner{UID: id.UID, GID: peer.GroupFor(id.UID, id.GID), Group: id.GID}, probes: s.probes, payer: peer.Payer()}
	if err := r.checkRoot(); err != nil {
		r.close()
		return nil, err
	}
	if want != (host.Inode{}) && want != id.Inode {
		r.close()
		return nil, refuseReplaced(path)
	}
	return r, nil
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

// serves decides whether a client may have jobs in the requested directory, and pins it. Without a descriptor, the
// operator must serve the path to the client. With one, the operator must serve the directory that it refers to, or,
// if Config.Own is set, the client must own it.
func (s *Supervisor) serves(peer host.Peer, path string, dir *os.File) (*repo, error) {
	if dir == nil {
		return s.servesPath(peer, path)
	}
	id, err := s.probes.Identify(peer.Payer(), dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	if id.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, &job.Refusal{Step: "repo", Message: "the descriptor passed as the repository is not a directory"}
	}
	r, err := s.servesOpen(peer, path, dir, id)
	if err != nil {
		return nil, err
	}
	return s.asPassed(peer, r, dir)
}

// asPassed records in r whether the mount through which the peer opened the directory is read-only; on failure it
// closes r. If that mount is the supervisor's own, nothing needs to be recorded, because a clone of it has its flags.
func (s *Supervisor) asPassed(peer host.Peer, r *repo, dir *os.File) (*repo, error) {
	if mount, err := probe.MountID(dir); err == nil {
		if own, err := probe.MountID(r.dir); err == nil && own == mount {
			return r, nil
		}
	}
	found, err := s.probes.FileSystem(peer.Payer(), dir)
	if err != nil {
		r.close()
		return nil, refuseRepo(r.path, err)
	}
	r.readOnly = found.FSFlags&unix.ST_RDONLY != 0
	return r, nil
}

// firstLink returns the first prefix of path that leads through a symbolic link, path itself at the latest; "" if
// there is none any more. Each probe has a timeout, and their number is logarithmic in the path's length.
func (s *Supervisor) firstLink(user uint32, path string) string {
	var ends []int // lengths of the prefixes of path that end at a component, path included
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			ends = append(ends, i)
		}
	}
	n := sort.Search(len(ends), func(i int) bool {
		dir, _, err := s.probes.OpenDir(user, path[:ends[i]])
		s.probes.Discard(user, dir)
		return errors.Is(err, unix.ELOOP)
	})
	if n == len(ends) {
		return ""
	}
	return path[:ends[n]]
}

// servesOpen is serves for the directory dir, whose identity is already known.
func (s *Supervisor) servesOpen(peer host.Peer, path string, dir *os.File, id probe.Identity) (*repo, error) {
	// Fast path: the descriptor is the pinned inode of a served repository, so readlink(/proc/self/fd), the slowest
	// step here, is skipped. Nothing is gained by a false path: the client could have sent the path alone.
	if s.config.pinned[path] == id.Inode && s.config.servesTo(peer, path) {
		if r, err := s.servesPath(peer, path); err == nil {
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
		if err := s.config.rejection(real); err != nil {
			return nil, err
		}
		if s.config.pinned[real] != id.Inode {
			return nil, refuseReplaced(real)
		}
		return s.servesPath(peer, real)
	case peer.Embedded, !s.config.Own:
		return nil, notServed(real)
	case id.UID != peer.UID:
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to user %d, not to you (user %d)", real, id.UID, peer.UID),
			Hint:    "the operator can serve it to you in the supervisor's configuration",
		}
	}
	if err := s.checkPath(real); err != nil { // served directories were checked by New
		return nil, err
	}
	r, err := s.pin(peer, real, id.Inode)
	if err == nil && peer.UID != 0 && r.UID != peer.UID { // a mount of the client's own shows the directory as the client's
		r.close()
		return nil, refuseMoved(real)
	}
	if err != nil && peer.UID != 0 && !errors.As(err, new(probe.StalledError)) && !errors.Is(err, host.ErrEnding) {
		return nil, refuseMoved(real)
	}
	if err == nil { // the directory's owner may learn why an entry for it is not served
		if rejected := s.config.rejection(real); rejected != nil {
			r.close()
			return nil, rejected
		}
	}
	return r, err
}

// servesPath pins a directory that the operator serves to the peer. The owner is checked again, because it may have
// changed.
func (s *Supervisor) servesPath(peer host.Peer, path string) (*repo, error) {
	if !s.config.servesTo(peer, path) {
		return nil, notServed(path)
	}
	if err := s.config.rejection(path); err != nil {
		return nil, err
	}
	known := s.config.pinned[path]
	if known == (host.Inode{}) {
		return nil, notServed(path)
	}
	r, err := s.pin(peer, path, known)
	if err != nil {
		return nil, err
	}
	for _, entry := range s.config.Repos {
		if entry.Path != path {
			continue
		}
		if err := entry.checkOwner(r.UID); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func notServed(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the supervisor does not serve %q", path),
		Hint:    "start the supervisor with --repo, or add it to its configuration",
	}
}

// checkPath refuses directories that cannot be a repository for any client.
func (s *Supervisor) checkPath(path string) error {
	if len(path) > 4000 || strings.HasSuffix(path, " (deleted)") || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return &job.Refusal{Step: "repo", Message: fmt.Sprintf("%.80q cannot be served: it must be the absolute, clean path of an existing directory, at most 4000 bytes", path)}
	}
	if err := errors.Join(rootfs.CheckRepoPath(path, s.refused...), rootfs.CheckHidden(path, s.homes)); err != nil {
		return &job.Refusal{Step: "repo", Message: err.Error()}
	}
	return nil
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

// mount makes a mount of the repository for the slot's job. It is not made ahead: it must have the flags that the
// host's mount has when the job comes, and must fail if the operator has unmounted it.
func (sl *slot) mount(readOnly bool) (*os.File, error) {
	return sl.jail.repo.clone(sl.idmap, readOnly)
}

// inspectAll inspects a repository, and the git directory of which it is a worktree.
func (s *Supervisor) inspectAll(user uint32, r *repo) error {
	for ; r != nil; r = r.common {
		if err := s.inspect(user, r); err != nil {
			return err
		}
	}
	return nil
}

// inspect records mode and file system of the repository, before anything is built on it.
func (s *Supervisor) inspect(user uint32, r *repo) error {
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
