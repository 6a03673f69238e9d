package cell

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/trust"
	"corral/rootfs"
)

// roots makes the trees of directories, links and files of the jails' roots, one tmpfs per jail. Nearly all of a tree
// is the copy of the host's /etc, some 1,000 files on a machine with many packages. So that copy is cached and
// revalidated for each jail, and the next jail's tree is written ahead while no job runs, without the mount points of
// its repository.
type roots struct {
	tools *host.Toolchains
	files []string // of /etc, which the operator names
	log   *slog.Logger
	begin func() bool // registers work, which done ends; returns false if the jails are ending
	done  func()
	live  func() int64 // returns the number of live jobs
	etc   *rootfs.Etc
	trust trust.Maker

	mu    fault.Mutex
	told  map[rootfs.Skip]bool // guarded by mu: files that the operator names and that were reported as not copied
	spare *spareRoot           // guarded by mu: nil if there is none
	timer *time.Timer          // guarded by mu: calls writeAhead; nil if not scheduled
	rest  time.Duration        // guarded by mu: the timer's current delay
}

// newRoots returns roots that show the toolchains in tools.
func newRoots(
	tools *host.Toolchains, files []string, log *slog.Logger, etc *rootfs.Etc, begin func() bool, done func(), live func() int64,
) *roots {
	return &roots{tools: tools, files: files, log: log, begin: begin, done: done, live: live, etc: etc}
}

// A spareRoot is a tree that was written ahead, on a detached mount that ends with its descriptor.
type spareRoot struct {
	tree  rootfs.Tree
	mount *os.File
}

// rootRest is the delay after which the next jail's tree is written ahead once a jail was built. While jobs run the
// delay doubles each time, up to longestRest.
const (
	rootRest    = 50 * time.Millisecond
	longestRest = time.Minute
)

// options returns the options of a tree without a repository.
func (r *roots) options() rootfs.Options {
	return rootfs.Options{
		Toolchains: r.tools.Paths, Hold: r.tools.Source, Etc: r.etc, EtcFiles: r.files,
		JobUIDs: rootfs.IDRange{First: host.FirstJobUID, Count: 1}, // each job's /etc/passwd gets its own number
	}
}

// A jailRoot is the root of a jail.
type jailRoot struct {
	tree      rootfs.Tree
	authority []byte       // certificate in PEM; empty: none
	trusted   *trust.Files // for it; nil: none

	mu      fault.Mutex
	dir     *os.File    // guarded by mu: the root, for refresh; nil: closed
	etc     rootfs.Tree // guarded by mu: what is in its /etc
	version uint64      // guarded by mu: see roots.version

	added map[string]bool // guarded by mu: the paths of addWorktree
	parts int             // guarded by mu: the sum of their depths
}

// maxParts is the maximum of jailRoot.parts: each may be a directory, in memory that no job is charged for.
const maxParts = 8192

// addWorktree makes directories in the root, which the jail's jobs see, in place of .git of a worktree, which is at git, and of the
// worktree, unless that lies where no repository can be. They are not readable, as nobody should take them for empty ones. It returns
// false if there are too many.
func (j *jailRoot) addWorktree(git string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	top := strings.TrimSuffix(git, "/.git")
	if j.dir == nil || j.added[git] || rootfs.CheckRepoPath(top) != nil {
		return true
	}
	if j.parts += strings.Count(git, "/"); j.parts > maxParts {
		return false
	}
	if j.added == nil {
		j.added = map[string]bool{}
	}
	j.added[git] = true
	dirs := rootfs.Tree{Entries: []rootfs.Entry{{Path: top, Mode: os.ModeDir | 0o711}, {Path: git, Mode: os.ModeDir | 0o711}}}
	_ = dirs.Write(int(j.dir.Fd())) // it fails below a link of the root: then git takes the worktree for removed
	return true
}

// close ends the use of the root here. The jail has mounted it.
func (j *jailRoot) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dir.Close()
	j.dir = nil
}

// make makes the root of a jail for a repository and, unless it is "", its common directory, and mounts it at a path. It has
// the files for an authority, unless that is empty. The caller must close it.
func (r *roots) make(at, repo, common string, authority []byte) (*jailRoot, error) {
	options := r.options()
	options.Repo, options.Common = repo, common
	j := &jailRoot{authority: authority, version: r.version()}
	var files rootfs.Tree
	var err error
	if j.tree, err = rootfs.Host(options); err != nil {
		return nil, err
	}
	if j.trusted, files, err = r.trustIn(j.tree, authority); err != nil {
		return nil, err
	}
	if err := host.MakeDir(at); err != nil {
		return nil, err
	}
	r.tell(j.tree.Skipped)
	missing := j.tree
	if j.dir = r.take(&missing); j.dir == nil {
		if j.dir, err = newRoot(); err != nil {
			return nil, err
		}
	}
	j.etc = j.tree.With(files, etcDir)
	err = missing.Write(int(j.dir.Fd()))
	if err == nil {
		err = rootfs.WriteBootID(int(j.dir.Fd()))
	}
	if err == nil { // over what was written ahead for any jail
		err = files.Overwrite(int(j.dir.Fd()))
	}
	if err == nil {
		err = unix.MoveMount(int(j.dir.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		j.close()
		return nil, fmt.Errorf("the root at %s: %w", at, err)
	}
	return j, nil
}

const etcDir = "/etc"

// trustIn returns the files for an authority, and those of a root that has the entries of a tree.
func (r *roots) trustIn(tree rootfs.Tree, authority []byte) (*trust.Files, rootfs.Tree, error) {
	trusted, err := r.trust.Files(tree, authority)
	if err != nil {
		return nil, rootfs.Tree{}, err
	}
	files, err := trusted.Host(tree)
	return trusted, files, err
}

// version returns a number that is another one when the host's /etc may have changed, at the latest after a second.
func (r *roots) version() uint64 {
	n, ok := r.etc.Changes()
	if !ok {
		return uint64(time.Now().Unix())
	}
	return n
}

// tell logs, once, which of the files that the operator names jobs do not see.
func (r *roots) tell(skipped []rootfs.Skip) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range skipped {
		named := slices.ContainsFunc(r.files, func(p string) bool { ok, _ := path.Match(p, s.Path); return ok || directory.Within(s.Path, p) })
		if !named || r.told[s] {
			continue
		}
		if r.told == nil {
			r.told = map[rootfs.Skip]bool{}
		}
		r.told[s] = true
		r.log.Warn("a file of etc_files is not shown to jobs", "path", s.Path, "reason", s.Reason)
	}
}

// refresh makes a jail's /etc what the host's is now. Jobs that run there see each file change at once, as programs on the
// host do.
func (r *roots) refresh(j *jailRoot) error {
	version := r.version()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.version == version || j.dir == nil {
		return nil
	}
	options := r.options()
	options.Toolchains = nil // they are not in /etc
	tree, err := rootfs.Host(options)
	if err != nil {
		return err
	}
	r.tell(tree.Skipped)
	_, files, err := r.trustIn(tree, j.authority)
	if err != nil {
		return err
	}
	etc := tree.With(files, etcDir)
	if err := etc.Update(int(j.dir.Fd()), j.etc); err != nil {
		return err
	}
	j.etc, j.version = etc, version
	return nil
}

// newRoot makes an empty, detached tmpfs.
func newRoot() (*os.File, error) {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fd)
	err = errors.Join(unix.FsconfigSetString(fd, "source", "tmpfs"), unix.FsconfigSetString(fd, "mode", "0755"), unix.FsconfigCreate(fd))
	if err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(mount), "root"), nil
}

// take returns the tree that was written ahead if wanted extends it, and reduces wanted to what is missing in it.
// Otherwise it returns nil.
func (r *roots) take(wanted *rootfs.Tree) *os.File {
	var spare *spareRoot
	fault.With(&r.mu, func() { spare, r.spare = r.spare, nil })
	if spare == nil {
		return nil
	}
	missing, ok := wanted.Beyond(spare.tree)
	if !ok { // the host changed in the meantime
		spare.mount.Close()
		return nil
	}
	*wanted = missing
	return spare.mount
}

// schedule schedules writing the next jail's tree, unless there is one.
func (r *roots) schedule() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spare == nil && r.timer == nil {
		r.rest = rootRest
		r.timer = time.AfterFunc(r.rest, r.writeAhead)
	}
}

// writeAhead writes the next jail's tree, or reschedules itself while jobs run.
func (r *roots) writeAhead() {
	if !r.begin() {
		return
	}
	defer r.done()
	if r.live() > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rest = min(2*r.rest, longestRest)
		r.timer.Reset(r.rest)
		return
	}
	var spare *spareRoot
	err := fault.Contain(r.log, "the root of the next jail", func() (err error) {
		spare, err = r.newSpare()
		return err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if err == nil { // on failure, building the next jail reports the error
		r.spare = spare
	}
}

func (r *roots) newSpare() (*spareRoot, error) {
	tree, err := rootfs.Host(r.options())
	if err != nil {
		return nil, err
	}
	mount, err := newRoot()
	if err != nil {
		return nil, err
	}
	if err := tree.Write(int(mount.Fd())); err != nil {
		mount.Close()
		return nil, err
	}
	return &spareRoot{tree, mount}, nil
}

// close drops the tree that was written ahead. writeAhead must not be running any more.
func (r *roots) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.spare != nil {
		r.spare.mount.Close()
		r.spare = nil
	}
}
