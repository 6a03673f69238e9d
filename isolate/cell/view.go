package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/layer"
	"corral/isolate/trust"
	"corral/job"
	"corral/rootfs"
)

// A view is what the jobs of a session see: its layer, and overlays and mounts made from it. The zero view is that of a
// jail without a session.
type view struct {
	reporter
	session  *Session
	repo     *admit.Repo
	base     uint32 // first host user id
	users    *jobUsers
	userns   *host.UsernsMaker
	hidden   *host.HiddenPaths
	instance *host.Instance
	etcFiles []string     // of the host's /etc, which the operator names
	trusted  *trust.Files // nil: none

	layer    *layer.Layer
	layerMap *os.File    // user namespace that maps the owners on a layer to the jail's root and its first user
	merged   string      // mount point of the overlay over the repository, or ""
	common   string      // mount point of the overlay over the common git directory, or ""
	roots    []bindMount // the mounts that make up a session's own root
	shares   []bindMount // directories of the layer shared by the session's jobs
}

// ImportDir is where the jobs of an importing session see the root file system.
const ImportDir = "/image"

// makeLayer creates or reopens the session's layer. The functions that undo it are pushed on u.
func (v *view) makeLayer(u *host.Cleanup, dir string) error {
	ss := v.session
	path := filepath.Join(dir, "layer")
	if err := host.MakeDir(path); err != nil {
		return err
	}
	u.Push(func() { v.report("directory", os.Remove(path)) })
	var err error
	if v.layer, err = ss.OpenLayer(path); err != nil {
		return err
	}
	u.Push(ss.CloseLayer)
	v.layerMap, err = v.userns.IDMap(layer.UID, layer.UID, v.base, 2)
	if err != nil {
		return err
	}
	u.Push(func() { v.layerMap.Close() })
	return nil
}

// An assembly is the assembling of a session's view: a view, and what that takes while the jail is built.
type assembly struct {
	*view
	init *initProcess  // mounts the overlays
	u    *host.Cleanup // unmounts what is mounted
	dir  string        // where mount points are made
	late []inside.Bind // toolchains that every job mounts for itself
}

// assemble makes the overlays and directories of the layer that the session's jobs see.
func (a *assembly) assemble() error {
	ss := a.session
	if ss.Import {
		return a.layerDir().ownedDir("root", 0o755)
	}
	if ss.Workspace == job.Overlay || ss.Resumed {
		below := func() (*os.File, error) {
			m, err := a.users.idmap(0)
			if err != nil {
				return nil, err
			}
			return a.repo.Clone(m, true)
		}
		var err error
		if a.merged, err = a.overlay(overlaySpec{name: "repo", mode: a.repo.Mode, below: below}); err != nil {
			return err
		}
		if err := a.overlayCommon(); err != nil {
			return err
		}
	}
	if ss.Root {
		return a.assembleRoot()
	}
	if ss.Share {
		return a.makeShares()
	}
	return nil
}

// overlayCommon makes an overlay over the common git directory, so that jobs can commit. There is none if it has another owner than
// the repository, because a session maps the ids of one.
func (a *assembly) overlayCommon() (err error) {
	c := a.repo.Common
	if c == nil || c.Owner != a.repo.Owner {
		return nil
	}
	below := func() (*os.File, error) {
		m, err := a.users.idmap(0)
		if err != nil {
			return nil, err
		}
		return c.Clone(m, true)
	}
	a.common, err = a.overlay(overlaySpec{name: "common", mode: c.Mode, below: below})
	return err
}

// makeShares makes the directories of the layer that all of the session's jobs share as home directory and /tmp. If
// the repository or something that the operator shows lies in one of the two, each job gets its own instead: the path
// to the mount point is created in it, and in a shared directory another job could redirect that path.
func (a *assembly) makeShares() error {
	dirs := []struct {
		bindMount
		owner int
		mode  uint32
	}{
		{bindMount{"home", rootfs.HomeDir}, userOwner, 0o700},
		{bindMount{"tmp", "/tmp"}, jailOwner, 0o1777},
	}
	shown := []string{a.repo.Path}
	if a.repo.Common != nil {
		shown = append(shown, a.repo.Common.Path)
	}
	for _, b := range a.late {
		shown = append(shown, b.Target)
	}
	for _, d := range dirs {
		if slices.ContainsFunc(shown, func(path string) bool { return directory.Within(path, d.target) }) {
			continue
		}
		if err := a.layerDir().dirOf(d.owner, d.source, d.mode); err != nil {
			return err
		}
		a.shares = append(a.shares, d.bindMount)
	}
	return nil
}

// layerDir returns the directory of the session's layer.
func (v *view) layerDir() layerDir { return layerDir{v.layer.Path(), v.session.Resumed} }

// fromLayer clones a directory of the layer, with the ids of the session's jail.
func (v *view) fromLayer(name string, readOnly bool) (*os.File, error) {
	return cloneMount(filepath.Join(v.layer.Path(), name), v.layerMap, readOnly)
}

// rootMounts clones the mounts that make up the root of a session's job.
func (v *view) rootMounts() ([]*os.File, error) {
	return cloneAll(v.roots, func(source string) (*os.File, error) { return cloneMount(source, nil, false) })
}

// sharedMounts clones the directories of the layer that the session's jobs share.
func (v *view) sharedMounts() ([]*os.File, error) {
	return cloneAll(v.shares, func(source string) (*os.File, error) { return v.fromLayer(source, false) })
}

// assembleRoot makes the session's root: a tree on the layer, or the layer merged with an imported root file system;
// in the first case the host's system directories, each merged with a part of the layer, are mounted over it.
func (a *assembly) assembleRoot() error {
	ss := a.session
	if ss.Image != "" {
		return a.assembleImage()
	}
	if err := a.layerDir().ownedDir("root", 0o755); err != nil {
		return err
	}
	tree, err := rootfs.Host(rootfs.Options{
		Repo: a.repo.Path, JobUIDs: rootfs.IDRange{First: host.FirstJobUID, Count: 1}, Lasting: true, // the session has one user
		Connected: ss.Door, EtcFiles: a.etcFiles,
	})
	if err != nil {
		return err
	}
	trusted, err := a.trusted.Host(tree)
	if err != nil {
		return err
	}
	if err := a.writeTree(filepath.Join(a.layer.Path(), "root"), tree, trusted); err != nil {
		return err
	}
	mount, err := a.fromLayer("root", false)
	if err != nil {
		return err
	}
	defer mount.Close()
	at, err := a.attach(mount)
	if err != nil {
		return err
	}
	a.roots = []bindMount{{at, "/"}}
	for n, b := range tree.Binds {
		if b.Target == optDir {
			continue
		}
		at, err := a.systemOverlay(n, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Target, err)
		}
		a.roots = append(a.roots, bindMount{at, b.Target})
	}
	return nil
}

// optDir holds unpackaged software with its logs, spools and data: a session has an empty one.
const optDir = "/opt"

// writeTree writes the entries of a tree to a directory of the layer, owned by the session's user, and those of another one
// over them.
func (v *view) writeTree(path string, tree, over rootfs.Tree) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if v.repo.Path != ImportDir {
		for _, r := range []*admit.Repo{v.repo.Common, v.repo} {
			if r != nil {
				tree.Entries = append(tree.Entries, rootfs.Entry{Path: r.Path, Mode: os.ModeDir | 0o755})
			}
		}
	}
	if err := tree.Write(int(dir.Fd())); err != nil {
		return err
	}
	if err := over.Overwrite(int(dir.Fd())); err != nil {
		return err
	}
	return errors.Join(tree.Own(int(dir.Fd()), userOwner), over.Own(int(dir.Fd()), userOwner))
}

// systemOverlay merges a system directory of the host with a part of the layer. In it the host's root appears as the
// session's user; so paths that only root may read on the host are hidden first.
func (a *assembly) systemOverlay(n int, b rootfs.Bind) (string, error) {
	hidden, err := a.hidden.Find(b.Source)
	if err != nil {
		return "", err
	}
	fill := func(upper string) error { return whiteOut(upper, hidden) }
	below := func() (*os.File, error) {
		m, err := a.userns.IDMap(0, 0, a.base+1, 1)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return cloneMount(b.Source, m, true)
	}
	return a.overlay(overlaySpec{fmt.Sprintf("dirs/%d", n), 0o755, fill, below})
}

// assembleImage makes the root of a session with an imported root file system: the read-only image merged with the
// layer.
func (a *assembly) assembleImage() error {
	image, leave, err := a.session.UseImage()
	if err != nil {
		return err
	}
	a.u.Push(leave)
	trusted, err := a.trustedIn(filepath.Join(image, "root"))
	if err != nil {
		return err
	}
	fill := func(upper string) error { return a.writeTree(upper, rootfs.Image(a.session.Door), trusted) }
	below := func() (*os.File, error) {
		return cloneMount(filepath.Join(image, "root"), a.layerMap, true)
	}
	at, err := a.overlay(overlaySpec{"root", 0o755, fill, below})
	if err != nil {
		return err
	}
	a.roots = []bindMount{{at, "/"}}
	return nil
}

// trustedIn returns the files for the session's authority over an imported root file system, which was mounted at path.
func (a *assembly) trustedIn(path string) (rootfs.Tree, error) {
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return rootfs.Tree{}, err
	}
	defer dir.Close()
	return a.trusted.Image(dir)
}

// refuseLayer turns errors of a client's layer into refusals: it is too small for what a session needs before its first
// job, or its file system is damaged. A file system that lost blocks on the host's disk may be mounted without an error,
// because its superblock says that it was unmounted; ext4 reports the damage when it reads a directory or an inode.
func refuseLayer(err error) error {
	for _, damage := range []error{unix.EBADMSG, unix.EUCLEAN, unix.EIO} { // a checksum, a structure, a read
		if errors.Is(err, damage) {
			return &job.Refusal{
				Step: "session", Message: fmt.Sprintf("%v: %v", layer.ErrDamaged, err),
				Hint: "recover files with e2fsck(8) and debugfs(8), or discard the layer",
			}
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return &job.Refusal{
		Step: "limits", Message: "the layer is too small for the files that a session needs before its first job",
		Hint: "request a larger layer with more files",
	}
}
