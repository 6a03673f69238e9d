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
	"corral/job"
	"corral/rootfs"
)

// A repo is a directory that is served: pinned by its device and inode when it was registered, held open since.
type repo struct {
	path     string
	dir      *os.File // O_PATH
	dev, ino uint64
	uid, gid uint32 // its owner, and a group that the peer has (groupFor): the only ids of the host that a job's user is mapped to
	group    uint32 // its group, which may be another one
	mode     uint32 // permission bits; set when its jail is built
	fs       int64  // its file system's magic number; likewise
	readOnly bool   // it was passed from a mount that is read-only
	common   *repo  // the git directory that it is a worktree of, or nil
	probes   *prober
	payer    uint32 // the payer of who had it pinned, in whose name it is closed
}

// pin opens path, which must be absolute and clean and have no link in it, as the directory with this inode, for jobs of
// the peer. The zero inode stands for whichever is there.
func (s *Supervisor) pin(peer Peer, path string, want inode) (*repo, error) {
	dir, id, err := s.probes.openDir(peer.payer(), path)
	if errors.Is(err, unix.ELOOP) {
		err = &directory.LinkError{Path: path, Link: s.firstLink(peer.payer(), path)}
	}
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	r := &repo{path: path, dir: dir, dev: id.dev, ino: id.ino, uid: id.uid, gid: peer.groupFor(id.uid, id.gid), group: id.gid, probes: &s.probes, payer: peer.payer()}
	if err := r.checkRoot(); err != nil {
		r.close()
		return nil, err
	}
	if want != (inode{}) && want != (inode{r.dev, r.ino}) {
		r.close()
		return nil, replaced(path)
	}
	return r, nil
}

// close takes a repository without a descriptor, too: see importDir.
func (r *repo) close() {
	if r.dir != nil {
		r.probes.discard(r.payer, r.dir)
	}
	if r.common != nil {
		r.common.close()
	}
}

// stays refuses a repository that is not at its path any more: an overlay goes on showing what was in a directory that was
// removed, and a new one in its place would never be seen.
func (r *repo) stays() error {
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
			Hint:    "open a new session; corral changes shows what was changed behind the overlay of this one when it is closed",
		}
	}
	return nil
}

func (r *repo) identity() repoIdentity {
	return repoIdentity{r.dev, r.ino, r.uid, r.gid, r.group, r.readOnly, r.path}
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
	refusal := &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q: %v", path, unwrapErrno(err))}
	var link *directory.LinkError
	switch {
	case errors.Is(err, unix.ENOENT):
		refusal.Message = fmt.Sprintf("no directory %q", path)
	case errors.Is(err, unix.ENOTDIR):
		refusal.Message = fmt.Sprintf("%q is no directory", path)
	case errors.As(err, &link):
		refusal.Errno, refusal.Message = int(unix.ELOOP), link.Error()
		refusal.Hint = directory.LinkHint
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
	id, err := s.probes.identify(peer.payer(), dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	if id.mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, &job.Refusal{Step: "repo", Message: "what was passed as the repository is no directory"}
	}
	r, err := s.servesOpen(peer, path, dir, id)
	if err != nil {
		return nil, err
	}
	return s.asPassed(peer, r, dir)
}

// asPassed notes of a pinned directory whether the mount is read-only through which the peer opened it, and closes it if that
// cannot be told. Of the supervisor's own mount nobody needs to be asked: what is cloned of it has its flags.
func (s *Supervisor) asPassed(peer Peer, r *repo, dir *os.File) (*repo, error) {
	if mount, err := mountID(dir); err == nil {
		if own, err := mountID(r.dir); err == nil && own == mount {
			return r, nil
		}
	}
	found, err := s.probes.fileSystem(peer.payer(), dir)
	if err != nil {
		r.close()
		return nil, refuseRepo(r.path, err)
	}
	r.readOnly = found.FSFlags&unix.ST_RDONLY != 0
	return r, nil
}

// mountID returns the id of the mount that an open file is on, which no file system is asked for (statx(2), STATX_MNT_ID).
func mountID(f *os.File) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.ENODATA
	}
	return st.Mnt_id, nil
}

// firstLink returns the first directory of path that leads through a symbolic link, path itself at the latest; "" if none
// does any more. Each look is bounded, and their number by the logarithm of the path's length.
func (s *Supervisor) firstLink(user uint32, path string) string {
	var ends []int // of the directories above path, and its own
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			ends = append(ends, i)
		}
	}
	n := sort.Search(len(ends), func(i int) bool {
		dir, _, err := s.probes.openDir(user, path[:ends[i]])
		s.probes.discard(user, dir)
		return errors.Is(err, unix.ELOOP)
	})
	if n == len(ends) {
		return ""
	}
	return path[:ends[n]]
}

// servesOpen is serves for the directory dir, whose identity is known.
func (s *Supervisor) servesOpen(peer Peer, path string, dir *os.File, id identity) (*repo, error) {
	// Who names a directory that is served, and passes it, need not be asked by which path it was opened: that takes longer
	// than all else here, and it could have named it alone.
	if s.config.pinned[path] == id.inode && s.config.servesTo(peer, path) {
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
		if s.config.pinned[real] != id.inode {
			return nil, replaced(real)
		}
		return s.servesPath(peer, real)
	case peer.Embedded, !s.config.Own:
		return nil, notServed(real)
	case id.uid != peer.UID:
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to user %d, not to you (user %d)", real, id.uid, peer.UID),
			Hint:    "the operator can serve it to you in the supervisor's configuration",
		}
	}
	if err := s.checkPath(real); err != nil { // what is served was checked by New
		return nil, err
	}
	r, err := s.pin(peer, real, id.inode)
	if err == nil && peer.UID != 0 && r.uid != peer.UID { // a mount of the client's own shows it as theirs
		r.close()
		return nil, elsewhere(real)
	}
	if err != nil && peer.UID != 0 && !errors.As(err, new(stalledError)) && !errors.Is(err, errEnding) {
		return nil, elsewhere(real)
	}
	if err == nil { // who owns what is at that path is told why an entry for it does not hold
		if rejected := s.config.rejection(real); rejected != nil {
			r.close()
			return nil, rejected
		}
	}
	return r, err
}

// servesPath pins a directory that the operator serves to the peer. Its owner is compared again: it can have changed hands.
func (s *Supervisor) servesPath(peer Peer, path string) (*repo, error) {
	if !s.config.servesTo(peer, path) {
		return nil, notServed(path)
	}
	if err := s.config.rejection(path); err != nil {
		return nil, err
	}
	known := s.config.pinned[path]
	if known == (inode{}) {
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
		if err := entry.checkOwner(r.uid); err != nil {
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
		Hint:    "name it with --repo when the supervisor is started, or in its configuration",
	}
}

// checkPath refuses directories that are nobody's repository, whoever asks.
func (s *Supervisor) checkPath(path string) error {
	if len(path) > 4000 || strings.HasSuffix(path, " (deleted)") || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return &job.Refusal{Step: "repo", Message: fmt.Sprintf("%.80q is no path of a directory that can be served", path)}
	}
	if err := errors.Join(rootfs.CheckRepoPath(path, s.refused...), rootfs.CheckHidden(path, s.homes)); err != nil {
		return &job.Refusal{Step: "repo", Message: err.Error()}
	}
	return nil
}

// clone makes a detached mount of the repository in which its owner appears as the host user id and nobody else as
// anyone: files of the owner are the job's, files the job makes are the owner's (mount_setattr(2), MOUNT_ATTR_IDMAP).
// Mounts below the repository are not in it.
func (r *repo) clone(userns *os.File, readOnly bool) (*os.File, error) {
	readOnly = readOnly || r.readOnly
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
