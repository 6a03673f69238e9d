package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/rootfs"
)

// Contents of a session's layer:
//
//	repo/upper, repo/work    the overlay over the repository
//	home, tmp                the home directory and /tmp of a session without a root of its own
//	root                     the root of a session that has one: the tree itself, or
//	root/upper, root/work    the overlay over an imported root file system
//	dirs/N/upper, work       the overlays over system directories of the host
//
// Everything except the work directories belongs to the session's user.
const (
	jailOwner = layer.UID     // the jail's root, as stored on a layer
	userOwner = layer.UID + 1 // the session's user, as stored on a layer
)

// importDir is where the jobs of an importing session see the root file system.
const importDir = "/image"

// A bindMount says where something of a session's is mounted in the supervisor's mount namespace, and where in a
// job's.
type bindMount struct{ source, target string }

// makeLayer creates or reopens the session's layer. The functions that undo it are pushed on u.
func (j *jail) makeLayer(u *host.Cleanup, dir string) error {
	ss := j.session
	path := filepath.Join(dir, "layer")
	if err := host.MakeDir(path); err != nil {
		return err
	}
	u.Push(func() { j.report("directory", os.Remove(path)) })
	var err error
	who := layer.Client{UID: ss.peer.Payer(), Kept: j.s.diskKept(ss.peer.Payer())}
	switch {
	case ss.from != "":
		ss.layer, err = j.s.layers.Reopen(ss.from+layerSuffix, path, who)
	case ss.imports():
		ss.layer, err = j.s.images.store.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	default:
		ss.layer, err = j.s.layers.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	}
	if err != nil {
		return refuseLayer(err)
	}
	u.Push(func() { ss.kept, ss.err = ss.closeLayer() })
	j.layerMap, err = j.s.userns.IDMap(layer.UID, layer.UID, j.base, 2)
	if err != nil {
		return err
	}
	u.Push(func() { j.layerMap.Close() })
	return nil
}

// refuseLayer turns errors of package layer that a client should see into refusals: a host without space or without a
// required feature is the operator's matter.
func refuseLayer(err error) error {
	forClient := false
	for _, known := range []error{layer.ErrNoRoom, layer.ErrHost, layer.ErrInUse, layer.ErrDamaged} {
		forClient = forClient || errors.Is(err, known)
	}
	if !forClient {
		return err
	}
	message, hint := host.SplitHint(err)
	return &job.Refusal{Step: "session", Message: message, Hint: hint}
}

// assemble makes the overlays and directories of the layer that the session's jobs see. The init mounts the overlays.
func (j *jail) assemble(u *host.Cleanup, dir string) error {
	ss := j.session
	if ss.imports() {
		if err := j.ownedDir("root", 0o755); err != nil {
			return err
		}
		return nil
	}
	if ss.workspace == job.Overlay || ss.from != "" {
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
	if ss.root() {
		return j.assembleRoot(u, dir)
	}
	if ss.shares() {
		return j.makeShares()
	}
	return nil
}

// makeShares makes the directories of the layer that all of the session's jobs share as home directory and /tmp. If
// the repository or something that the operator shows lies in one of the two, each job gets its own instead: the path
// to the mount point is created in it, and in a shared directory another job could redirect that path.
func (j *jail) makeShares() error {
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
		path := filepath.Join(j.session.layer.Path(), d.source)
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

// An overlaySpec describes an overlay to be made.
type overlaySpec struct {
	name  string                   // directory of the layer
	mode  uint32                   // of its upper directory, and so of the merged one
	fill  func(upper string) error // writes what exists before the first job; may be nil
	below func() (*os.File, error) // returns a detached mount of the lower directory
}

// overlay makes an overlay, mounts it in dir, and returns the mount point.
func (j *jail) overlay(u *host.Cleanup, dir string, m overlaySpec) (string, error) {
	name := m.name
	if err := j.ownedDir(name+"/upper", m.mode); err != nil {
		return "", err
	}
	if m.fill != nil {
		if err := m.fill(filepath.Join(j.session.layer.Path(), name, "upper")); err != nil {
			return "", err
		}
	}
	if err := j.freshWork(name + "/work"); err != nil {
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
	if err := j.makeSpares(name); err != nil {
		return "", err
	}
	return j.attach(u, dir, merged)
}

// attach mounts a detached mount at a new mount point in dir: only an attached mount can be cloned for each job.
func (j *jail) attach(u *host.Cleanup, dir string, mount *os.File) (string, error) {
	at := filepath.Join(dir, j.s.instance.Unique("mount-"))
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

// ownedDir makes a directory of the layer that belongs to the session's user; missing parents are made for the jail's
// root. On a layer that was kept the directory exists already.
func (j *jail) ownedDir(name string, mode uint32) error {
	path := filepath.Join(j.session.layer.Path(), name)
	if err := j.makeParents(name); err != nil {
		return err
	}
	if err := unix.Mkdir(path, mode); err != nil {
		if errors.Is(err, unix.EEXIST) && j.session.from != "" {
			return nil
		}
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return setOwner(path, userOwner, mode)
}

// makeParents makes the parent directories of a path in the layer.
func (j *jail) makeParents(name string) error {
	at := j.session.layer.Path()
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		switch err := unix.Mkdir(at, 0o711); {
		case errors.Is(err, unix.EEXIST):
		case err != nil:
			return &os.PathError{Op: "mkdir", Path: at, Err: err}
		default:
			if err := setOwner(at, jailOwner, 0o711); err != nil {
				return err
			}
		}
	}
	return nil
}

func setOwner(path string, id int, mode uint32) error {
	if err := unix.Chmod(path, mode); err != nil { // the umask is stricter
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if err := unix.Lchown(path, id, id); err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}

// fromLayer clones a directory of the layer, with the ids of the session's jail.
func (j *jail) fromLayer(name string, readOnly bool) (*os.File, error) {
	return cloneMount(filepath.Join(j.session.layer.Path(), name), j.layerMap, readOnly)
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
func (j *jail) rootMounts() ([]*os.File, error) {
	return cloneAll(j.roots, func(source string) (*os.File, error) { return cloneMount(source, nil, false) })
}

// sharedMounts clones the directories of the layer that the session's jobs share.
func (j *jail) sharedMounts() ([]*os.File, error) {
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

// extra holds descriptors of a plan beyond those of every job. The caller closes owned after sending the plan.
type extra struct{ files, owned []*os.File }

// tool makes the plan run one of corral's own programs, if the job requests a tool.
func (sl *slot) tool(q *admit.Request, plan *inside.Plan) (extra, error) {
	if q.Tool == string(job.ToolNone) {
		return extra{}, nil
	}
	plan.ExecFD = true
	if q.Tool == string(job.ToolStarlark) {
		return extra{files: []*os.File{sl.jail.s.programs.Starlark}}, nil
	}
	e := extra{files: []*os.File{sl.jail.s.programs.Layer}}
	if q.Tool == string(job.ToolChanges) {
		upper, err := sl.jail.fromLayer("repo/upper", true)
		if err != nil {
			return extra{}, err
		}
		plan.Layer = true
		e.files, e.owned = append(e.files, upper), []*os.File{upper}
	}
	return e, nil
}

// noteFull records in r whether the layer has run out of space or inodes.
func (ss *session) noteFull(r *wire.Result) {
	u, err := ss.layer.Usage()
	r.LayerFull = r.LayerFull || err == nil && u.Full()
	r.FilesFull = r.FilesFull || err == nil && u.FreeFiles == 0
}

// watchLayer polls the layer of a session while a job runs in it, so that a layer that was full only for a while is
// reported too. It checks a last time in stop.
func (ss *session) watchLayer(r *wire.Result) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(layerInterval, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			ss.noteFull(r)
			timer.Reset(layerInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
		ss.noteFull(r)
	}
}

// layerInterval is how often a layer is checked while a job runs.
const layerInterval = 50 * time.Millisecond

// workspace makes the mount of the repository for a job; nil if the job has none.
func (sl *slot) workspace(q *admit.Request) (*os.File, error) {
	j, readOnly := sl.jail, q.Flags&wire.FlagReadOnly != 0
	switch {
	case q.Flags&wire.FlagNoRepo != 0:
		return nil, nil
	case j.session != nil && j.session.imports():
		return j.fromLayer("root", readOnly)
	case j.merged != "" && q.Tool == string(job.ToolNone):
		return cloneMount(j.merged, nil, readOnly)
	}
	return sl.mount(readOnly)
}

// assembleRoot makes the session's root: a tree on the layer, or the layer merged with an imported root file system;
// in the first case the host's system directories, each merged with a part of the layer, are mounted over it.
func (j *jail) assembleRoot(u *host.Cleanup, dir string) error {
	ss := j.session
	if ss.spec.Image != "" {
		return j.assembleImage(u, dir)
	}
	if err := j.ownedDir("root", 0o755); err != nil {
		return err
	}
	tree, err := rootfs.Host(rootfs.Options{
		Repo: j.repo.Path, JobUIDs: rootfs.IDRange{First: host.FirstJobUID, Count: 1}, Lasting: true, // the session has one user
	})
	if err != nil {
		return err
	}
	if err := j.writeTree(filepath.Join(ss.layer.Path(), "root"), tree); err != nil {
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
func (j *jail) writeTree(path string, tree rootfs.Tree) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if j.repo.Path != importDir {
		tree.Entries = append(tree.Entries, rootfs.Entry{Path: j.repo.Path, Mode: os.ModeDir | 0o755})
	}
	if err := tree.Write(int(dir.Fd())); err != nil {
		return err
	}
	return tree.Own(int(dir.Fd()), userOwner)
}

// systemOverlay merges a system directory of the host with a part of the layer. In it the host's root appears as the
// session's user; so paths that only root may read on the host are hidden first.
func (j *jail) systemOverlay(u *host.Cleanup, dir string, n int, b rootfs.Bind) (string, error) {
	hidden, err := j.s.hidden.Find(b.Source)
	if err != nil {
		return "", err
	}
	fill := func(upper string) error { return whiteOut(upper, hidden) }
	below := func() (*os.File, error) {
		m, err := j.s.userns.IDMap(0, 0, j.base+1, 1)
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
func (j *jail) assembleImage(u *host.Cleanup, dir string) error {
	image, err := j.s.images.use(j.session.spec.Image)
	if err != nil {
		return err
	}
	u.Push(image.leave)
	fill := func(upper string) error { return j.writeTree(upper, rootfs.Image()) }
	below := func() (*os.File, error) {
		return cloneMount(filepath.Join(image.layer.Path(), "root"), j.layerMap, true)
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
