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
	"corral/isolate/inside"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/rootfs"
)

// On a session's layer:
//
//	repo/upper, repo/work    the overlay over the repository
//	home, tmp                the home directory and /tmp of a session that has no root of its own
//	root                     the root of a session that has one: the tree itself, or
//	root/upper, root/work    the overlay over an imported one
//	dirs/N/upper, work       the overlays over system directories of the host
//
// All but the work directories belongs to the session's user.
const (
	jailOwner = layer.UID     // the jail's root, on a layer
	userOwner = layer.UID + 1 // the session's user, on a layer
)

// importDir is where a session that imports a root file system has it.
const importDir = "/image"

// A place is where something of a session's is mounted in the supervisor's own mount namespace, and where a job has it.
type place struct{ source, target string }

// makeLayer makes or reopens the session's layer. What is made is in u.
func (j *jail) makeLayer(u *undo, dir string) error {
	ss := j.session
	path := filepath.Join(dir, "layer")
	if err := makeDir(path); err != nil {
		return err
	}
	u.push(func() { j.report("directory", os.Remove(path)) })
	var err error
	who := layer.Client{UID: ss.peer.payer(), Kept: j.s.diskKept(ss.peer.payer())}
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
	u.push(func() { ss.kept, ss.err = ss.closeLayer() })
	j.layerMap, err = j.s.userns.idmap(layer.UID, layer.UID, j.base, 2)
	if err != nil {
		return err
	}
	u.push(func() { j.layerMap.Close() })
	return nil
}

// refuseLayer is for the client: a host without room or without what it takes is the operator's matter.
func refuseLayer(err error) error {
	told := false
	for _, known := range []error{layer.ErrNoRoom, layer.ErrHost, layer.ErrInUse, layer.ErrDamaged} {
		told = told || errors.Is(err, known)
	}
	if !told {
		return err
	}
	message, hint := splitHint(err)
	return &job.Refusal{Step: "session", Message: message, Hint: hint}
}

// assemble makes what the session's jobs see of the layer: its init merges it with what lies below.
func (j *jail) assemble(u *undo, dir string) error {
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
			return j.repo.clone(m, true)
		}
		var err error
		if j.merged, err = j.overlay(u, dir, merge{name: "repo", mode: j.repo.mode, below: below}); err != nil {
			return err
		}
	}
	if ss.root() {
		return j.assembleRoot(u, dir)
	}
	if ss.shares() {
		return j.share()
	}
	return nil
}

// share makes the directories of the layer that all of the session's jobs have for the home directory and /tmp. One in which
// the repository or something that the operator shows lies is each job's own all the same: the way there is made in it, which
// a job could turn elsewhere in one that it shares.
func (j *jail) share() error {
	dirs := []struct {
		place
		owner int
		mode  uint32
	}{
		{place{"home", rootfs.HomeDir}, userOwner, 0o700},
		{place{"tmp", "/tmp"}, jailOwner, 0o1777},
	}
	shown := []string{j.repo.path}
	if j.repo.common != nil {
		shown = append(shown, j.repo.common.path)
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
		if err := own(path, d.owner, d.mode); err != nil {
			return err
		}
		j.shares = append(j.shares, d.place)
	}
	return nil
}

// A merge is an overlay to be made.
type merge struct {
	name  string                   // directory of the layer
	mode  uint32                   // of its upper directory, which is the merged one's
	fill  func(upper string) error // puts into it what there is before any job; may be nil
	below func() (*os.File, error) // returns a detached mount of what lies below
}

// overlay makes an overlay, and mounts it in dir. It returns where.
func (j *jail) overlay(u *undo, dir string, m merge) (string, error) {
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

// attach mounts what is detached at a new place in dir: only what is attached can be cloned for each job.
func (j *jail) attach(u *undo, dir string, mount *os.File) (string, error) {
	at := filepath.Join(dir, j.s.name("mount-"))
	if err := makeDir(at); err != nil {
		return "", err
	}
	u.push(func() { j.report("directory", os.Remove(at)) })
	if err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	u.push(func() { _ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	return at, nil
}

// ownedDir makes a directory of the layer that belongs to the session's user, and those above it, which are the jail's. On
// a layer that was kept they are there.
func (j *jail) ownedDir(name string, mode uint32) error {
	path := filepath.Join(j.session.layer.Path(), name)
	if err := j.above(name); err != nil {
		return err
	}
	if err := unix.Mkdir(path, mode); err != nil {
		if errors.Is(err, unix.EEXIST) && j.session.from != "" {
			return nil
		}
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return own(path, userOwner, mode)
}

// above makes the directories above one of the layer's.
func (j *jail) above(name string) error {
	at := j.session.layer.Path()
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		switch err := unix.Mkdir(at, 0o711); {
		case errors.Is(err, unix.EEXIST):
		case err != nil:
			return &os.PathError{Op: "mkdir", Path: at, Err: err}
		default:
			if err := own(at, jailOwner, 0o711); err != nil {
				return err
			}
		}
	}
	return nil
}

func own(path string, id int, mode uint32) error {
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

// cloneMount makes a detached mount of the directory at path, which is the supervisor's to name, with the ids of userns
// if that is not nil.
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
	return clones(j.roots, func(source string) (*os.File, error) { return cloneMount(source, nil, false) })
}

// sharedMounts clones the directories of the layer that the session's jobs share.
func (j *jail) sharedMounts() ([]*os.File, error) {
	return clones(j.shares, func(source string) (*os.File, error) { return j.fromLayer(source, false) })
}

// clones makes a mount of the source of each place.
func clones(places []place, clone func(source string) (*os.File, error)) ([]*os.File, error) {
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

// extra are descriptors of a plan beyond those of every job; owned are to be closed when it is sent.
type extra struct{ files, owned []*os.File }

// tool has the plan run a program of ours, if the job is that.
func (sl *slot) tool(q *Request, plan *inside.Plan) (extra, error) {
	if q.Tool == string(job.ToolNone) {
		return extra{}, nil
	}
	plan.ExecFD = true
	if q.Tool == string(job.ToolStarlark) {
		return extra{files: []*os.File{sl.jail.s.programs.starlark}}, nil
	}
	e := extra{files: []*os.File{sl.jail.s.programs.layer}}
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

// full notes what the job found no room for.
func (ss *session) full(r *wire.Result) {
	u, err := ss.layer.Usage()
	r.LayerFull = r.LayerFull || err == nil && u.Full()
	r.FilesFull = r.FilesFull || err == nil && u.FreeFiles == 0
}

// watchLayer looks at the layer of a session while a job runs in it: a disk that was full for a while is told, too. When
// stop returns it has looked for the last time.
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
			ss.full(r)
			timer.Reset(layerInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
		ss.full(r)
	}
}

// layerInterval is how often a layer is looked at while a job runs.
const layerInterval = 50 * time.Millisecond

// workspace makes the mount of the repository that a job gets; nil is none.
func (sl *slot) workspace(q *Request) (*os.File, error) {
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

// --- a root of the session's own ---

// assembleRoot makes the session's root: a tree on the layer, or one merged with what was imported, and over that the
// host's system directories, each merged with a part of the layer.
func (j *jail) assembleRoot(u *undo, dir string) error {
	ss := j.session
	if ss.spec.Image != "" {
		return j.assembleImage(u, dir)
	}
	if err := j.ownedDir("root", 0o755); err != nil {
		return err
	}
	tree, err := rootfs.Host(rootfs.Options{
		Repo: j.repo.path, JobUIDs: rootfs.IDRange{First: firstJobUID, Count: 1}, Lasting: true, // the session has one user
	})
	if err != nil {
		return err
	}
	if err := j.furnish(filepath.Join(ss.layer.Path(), "root"), tree); err != nil {
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
	j.roots = []place{{at, "/"}}
	for n, b := range tree.Binds {
		if b.Target == optDir {
			continue
		}
		at, err := j.systemOverlay(u, dir, n, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Target, err)
		}
		j.roots = append(j.roots, place{at, b.Target})
	}
	return nil
}

// optDir holds what no distribution has packaged, with its logs, spools and data: a session has an empty one.
const optDir = "/opt"

// furnish writes the entries of a tree to a directory of the layer, for the session's user.
func (j *jail) furnish(path string, tree rootfs.Tree) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if j.repo.path != importDir {
		tree.Entries = append(tree.Entries, rootfs.Entry{Path: j.repo.path, Mode: os.ModeDir | 0o755})
	}
	if err := tree.Write(int(dir.Fd())); err != nil {
		return err
	}
	return tree.Own(int(dir.Fd()), userOwner)
}

// systemOverlay merges a system directory of the host with a part of the layer. The host's root is the session's user
// there; so what only root may read on the host is taken out first.
func (j *jail) systemOverlay(u *undo, dir string, n int, b rootfs.Bind) (string, error) {
	hidden, err := j.s.hidden.of(b.Source)
	if err != nil {
		return "", err
	}
	fill := func(upper string) error { return whiteOut(upper, hidden) }
	below := func() (*os.File, error) {
		m, err := j.s.userns.idmap(0, 0, j.base+1, 1)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return cloneMount(b.Source, m, true)
	}
	return j.overlay(u, dir, merge{fmt.Sprintf("dirs/%d", n), 0o755, fill, below})
}

// assembleImage makes the root of a session with a root file system of its own: the image, which nobody writes to, merged
// with the layer.
func (j *jail) assembleImage(u *undo, dir string) error {
	image, err := j.s.images.use(j.session.spec.Image)
	if err != nil {
		return err
	}
	u.push(image.leave)
	fill := func(upper string) error { return j.furnish(upper, rootfs.Image()) }
	below := func() (*os.File, error) {
		return cloneMount(filepath.Join(image.layer.Path(), "root"), j.layerMap, true)
	}
	at, err := j.overlay(u, dir, merge{"root", 0o755, fill, below})
	if err != nil {
		return err
	}
	j.roots = []place{{at, "/"}}
	return nil
}
