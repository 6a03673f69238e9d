package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/rootfs"
)

// ImportDir is where the jobs of an importing session see the root file system.
const ImportDir = "/image"

// A bindMount says where something of a session's is mounted in the supervisor's mount namespace, and where in a
// job's.
type bindMount struct{ source, target string }

// makeLayer creates or reopens the session's layer. The functions that undo it are pushed on u.
func (j *Jail) makeLayer(u *host.Cleanup, dir string) error {
	ss := j.session
	path := filepath.Join(dir, "layer")
	if err := host.MakeDir(path); err != nil {
		return err
	}
	u.Push(func() { j.report("directory", os.Remove(path)) })
	var err error
	if j.layer, err = ss.OpenLayer(path); err != nil {
		return err
	}
	u.Push(ss.CloseLayer)
	j.layerMap, err = j.s.Userns.IDMap(layer.UID, layer.UID, j.base, 2)
	if err != nil {
		return err
	}
	u.Push(func() { j.layerMap.Close() })
	return nil
}

// assemble makes the overlays and directories of the layer that the session's jobs see. The init mounts the overlays.
func (j *Jail) assemble(u *host.Cleanup, dir string) error {
	ss := j.session
	if ss.Import {
		if err := j.layerDir().ownedDir("root", 0o755); err != nil {
			return err
		}
		return nil
	}
	if ss.Workspace == job.Overlay || ss.Resumed {
		below := func() (*os.File, error) {
			m, err := j.idmap(0)
			if err != nil {
				return nil, err
			}
			return j.repo.Clone(m, true)
		}
		var err error
		if j.merged, err = j.overlay(u, dir, overlaySpec{name: "repo", mode: j.repo.Mode, below: below}); err != nil {
			return err
		}
	}
	if ss.Root {
		return j.assembleRoot(u, dir)
	}
	if ss.Share {
		return j.makeShares()
	}
	return nil
}

// makeShares makes the directories of the layer that all of the session's jobs share as home directory and /tmp. If
// the repository or something that the operator shows lies in one of the two, each job gets its own instead: the path
// to the mount point is created in it, and in a shared directory another job could redirect that path.
func (j *Jail) makeShares() error {
	dirs := []struct {
		bindMount
		owner int
		mode  uint32
	}{
		{bindMount{"home", rootfs.HomeDir}, userOwner, 0o700},
		{bindMount{"tmp", "/tmp"}, jailOwner, 0o1777},
	}
	shown := []string{j.repo.Path}
	if j.repo.Common != nil {
		shown = append(shown, j.repo.Common.Path)
	}
	for _, b := range j.late {
		shown = append(shown, b.Target)
	}
	for _, d := range dirs {
		if slices.ContainsFunc(shown, func(path string) bool { return directory.Within(path, d.target) }) {
			continue
		}
		path := filepath.Join(j.layer.Path(), d.source)
		if err := unix.Mkdir(path, d.mode); err != nil {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		if err := setOwner(path, d.owner, d.mode); err != nil {
			return err
		}
		j.shares = append(j.shares, d.bindMount)
	}
	return nil
}

// layerDir returns the directory of the session's layer.
func (j *Jail) layerDir() layerDir { return layerDir{j.layer.Path(), j.session.Resumed} }

// An overlaySpec describes an overlay to be made.
type overlaySpec struct {
	name  string                   // directory of the layer
	mode  uint32                   // of its upper directory, and so of the merged one
	fill  func(upper string) error // writes what exists before the first job; may be nil
	below func() (*os.File, error) // returns a detached mount of the lower directory
}

// overlay makes an overlay, mounts it in dir, and returns the mount point.
func (j *Jail) overlay(u *host.Cleanup, dir string, m overlaySpec) (string, error) {
	name := m.name
	if err := j.layerDir().ownedDir(name+"/upper", m.mode); err != nil {
		return "", err
	}
	if m.fill != nil {
		if err := m.fill(filepath.Join(j.layer.Path(), name, "upper")); err != nil {
			return "", err
		}
	}
	if err := j.layerDir().freshWork(name + "/work"); err != nil {
		return "", err
	}
	lower, err := m.below()
	if err != nil {
		return "", err
	}
	defer lower.Close()
	part, err := j.fromLayer(name, false)
	if err != nil {
		return "", err
	}
	defer part.Close()
	merged, err := j.ask(inside.AskOverlay, func() {}, lower, part)
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	defer merged.Close()
	if err := j.layerDir().makeSpares(name); err != nil {
		return "", err
	}
	return j.attach(u, dir, merged)
}

// attach mounts a detached mount at a new mount point in dir: only an attached mount can be cloned for each job.
func (j *Jail) attach(u *host.Cleanup, dir string, mount *os.File) (string, error) {
	at := filepath.Join(dir, j.s.Instance.Unique("mount-"))
	if err := host.MakeDir(at); err != nil {
		return "", err
	}
	u.Push(func() { j.report("directory", os.Remove(at)) })
	if err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	u.Push(func() { _ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	return at, nil
}

// fromLayer clones a directory of the layer, with the ids of the session's jail.
func (j *Jail) fromLayer(name string, readOnly bool) (*os.File, error) {
	return cloneMount(filepath.Join(j.layer.Path(), name), j.layerMap, readOnly)
}

// cloneMount makes a detached mount of the directory at path, which must be a path of the supervisor's own, id-mapped
// by userns if that is not nil.
func cloneMount(path string, userns *os.File, readOnly bool) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	mount := os.NewFile(uintptr(fd), path)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		mount.Close()
		return nil, fmt.Errorf("mount_setattr %s: %w", path, err)
	}
	return mount, nil
}

// rootMounts clones the mounts that make up the root of a session's job.
func (j *Jail) rootMounts() ([]*os.File, error) {
	return cloneAll(j.roots, func(source string) (*os.File, error) { return cloneMount(source, nil, false) })
}

// sharedMounts clones the directories of the layer that the session's jobs share.
func (j *Jail) sharedMounts() ([]*os.File, error) {
	return cloneAll(j.shares, func(source string) (*os.File, error) { return j.fromLayer(source, false) })
}

// cloneAll clones the source of each mount.
func cloneAll(places []bindMount, clone func(source string) (*os.File, error)) ([]*os.File, error) {
	var list []*os.File
	for _, p := range places {
		mount, err := clone(p.source)
		if err != nil {
			wire.CloseAll(list)
			return nil, err
		}
		list = append(list, mount)
	}
	return list, nil
}

// assembleRoot makes the session's root: a tree on the layer, or the layer merged with an imported root file system;
// in the first case the host's system directories, each merged with a part of the layer, are mounted over it.
func (j *Jail) assembleRoot(u *host.Cleanup, dir string) error {
	ss := j.session
	if ss.Image != "" {
		return j.assembleImage(u, dir)
	}
	if err := j.layerDir().ownedDir("root", 0o755); err != nil {
		return err
	}
	tree, err := rootfs.Host(rootfs.Options{
		Repo: j.repo.Path, JobUIDs: rootfs.IDRange{First: host.FirstJobUID, Count: 1}, Lasting: true, // the session has one user
	})
	if err != nil {
		return err
	}
	if err := j.writeTree(filepath.Join(j.layer.Path(), "root"), tree); err != nil {
		return err
	}
	mount, err := j.fromLayer("root", false)
	if err != nil {
		return err
	}
	defer mount.Close()
	at, err := j.attach(u, dir, mount)
	if err != nil {
		return err
	}
	j.roots = []bindMount{{at, "/"}}
	for n, b := range tree.Binds {
		if b.Target == optDir {
			continue
		}
		at, err := j.systemOverlay(u, dir, n, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Target, err)
		}
		j.roots = append(j.roots, bindMount{at, b.Target})
	}
	return nil
}

// optDir holds unpackaged software with its logs, spools and data: a session has an empty one.
const optDir = "/opt"

// writeTree writes the entries of a tree to a directory of the layer, owned by the session's user.
func (j *Jail) writeTree(path string, tree rootfs.Tree) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if j.repo.Path != ImportDir {
		tree.Entries = append(tree.Entries, rootfs.Entry{Path: j.repo.Path, Mode: os.ModeDir | 0o755})
	}
	if err := tree.Write(int(dir.Fd())); err != nil {
		return err
	}
	return tree.Own(int(dir.Fd()), userOwner)
}

// systemOverlay merges a system directory of the host with a part of the layer. In it the host's root appears as the
// session's user; so paths that only root may read on the host are hidden first.
func (j *Jail) systemOverlay(u *host.Cleanup, dir string, n int, b rootfs.Bind) (string, error) {
	hidden, err := j.s.hidden.Find(b.Source)
	if err != nil {
		return "", err
	}
	fill := func(upper string) error { return whiteOut(upper, hidden) }
	below := func() (*os.File, error) {
		m, err := j.s.Userns.IDMap(0, 0, j.base+1, 1)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return cloneMount(b.Source, m, true)
	}
	return j.overlay(u, dir, overlaySpec{fmt.Sprintf("dirs/%d", n), 0o755, fill, below})
}

// assembleImage makes the root of a session with an imported root file system: the read-only image merged with the
// layer.
func (j *Jail) assembleImage(u *host.Cleanup, dir string) error {
	image, leave, err := j.session.UseImage()
	if err != nil {
		return err
	}
	u.Push(leave)
	fill := func(upper string) error { return j.writeTree(upper, rootfs.Image()) }
	below := func() (*os.File, error) {
		return cloneMount(filepath.Join(image, "root"), j.layerMap, true)
	}
	at, err := j.overlay(u, dir, overlaySpec{"root", 0o755, fill, below})
	if err != nil {
		return err
	}
	j.roots = []bindMount{{at, "/"}}
	return nil
}

// whiteOut hides paths of an overlay's lower directory by writing whiteouts into its upper directory, before the
// overlay is mounted: a character device 0:0 hides the name (overlayfs.rst, "whiteouts and opaque directories").
func whiteOut(upper string, paths []string) error {
	for _, p := range paths {
		parts := strings.Split(p, "/")
		at := upper
		for _, name := range parts[:len(parts)-1] {
			at = filepath.Join(at, name)
			if err := unix.Mkdir(at, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return &os.PathError{Op: "mkdir", Path: at, Err: err}
			}
			if err := setOwner(at, userOwner, 0o755); err != nil {
				return err
			}
		}
		at = filepath.Join(at, parts[len(parts)-1])
		if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "mknod", Path: at, Err: err}
		}
	}
	return nil
}

// refuseSmall turns ENOSPC into a refusal: the client's layer is too small for what a session needs before its first
// job.
func refuseSmall(err error) error {
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return &job.Refusal{
		Step: "limits", Message: "the layer is too small for the files that a session needs before its first job",
		Hint: "request a larger layer with more files",
	}
}
