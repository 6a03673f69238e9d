package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Options configures the tree of a jail.
type Options struct {
	// Host is the root of the host tree; "" stands for "/". Files are copied only if they belong to its owner, root
	// on a real host.
	Host string
	// Repo is where the repository will be mounted in the jail: absolute, clean, links resolved. "" stands for none.
	// Its mount point is among the entries unless it lies in a directory of [Private], where each job's launcher
	// creates it, or in a bind, where it exists.
	Repo string
	// Common is where the common git directory is mounted if Repo is a worktree, under the same conditions.
	Common string
	// Toolchains are additional host directories that jobs may read and execute, at the same paths. Those within a
	// bind or another toolchain are dropped.
	Toolchains []string
	// Hold, if set, is called with each toolchain that is bound and an O_PATH descriptor of the directory that was
	// checked, which is open until Hold returns. It returns the path to bind instead. Without Hold the source is the
	// toolchain's own path, which the owner of a parent directory can redirect before it is bound.
	Hold func(path string, dir int) (source string, err error)
	// Etc keeps the copy of the host's /etc for the next tree; with nil, everything is read each time.
	Etc *Etc
	// EtcFiles are further files and directories below /etc to copy, absolute paths. Their components may be patterns of path.Match.
	EtcFiles []string
	// Lasting selects the tree of a session's own root: directories for temporary files and homes are among the
	// entries, with their modes.
	Lasting bool
	// Connected selects the resolver's settings of jobs that may reach hosts for /etc. Otherwise they are in DoorDir alone.
	Connected bool
	// JobUIDs are the UIDs of jobs inside the jail.
	JobUIDs IDRange
}

// IDRange is the UIDs, and equal GIDs, First to First+Count-1. The zero IDRange is empty.
type IDRange struct{ First, Count int }

// maxIDs is the maximum of [IDRange.Count]. getpwuid(3) reads the file from its start: 4096 lines take 0.26 ms, 65536
// lines 5.5 ms and 2.7 MB in each jail.
const maxIDs = 4096

// systemDirs are the host directories with its programs. A link into another row (merged /usr) stays a link, the
// others are bound.
var systemDirs = []struct{ path, reason string }{
	{"/usr", "programs, libraries, headers, data"},
	{"/bin", "#!/bin/sh"},
	{"/sbin", "ldconfig, ip"},
	{"/lib", "libraries where /usr is not merged, the loader of arm64"},
	{"/lib32", "libraries of a second architecture"},
	{"/lib64", "the loader of x86-64 by its absolute path"},
	{"/libx32", "libraries of a third architecture"},
	{"/opt", "software from outside the distribution"},
}

// emptyDirs exist in every jail, in addition to those of [Private].
var emptyDirs = []struct{ path, reason string }{
	{"/dev", "mount point of the tmpfs of WriteDev"},
	{"/proc", "mount point of each job's own procfs"},
	{"/run", "the target of /var/run, empty"},
	{"/sys", "empty, so that programs find no hardware"},
	{"/var", "the parent of /var/tmp"},
	{MaskDir, "the mask of directories in /proc"},
	{LayerDir, "mount point of a session's layer, for jobs that read it"},
	{lowerDir, "mount point of an overlay's lower directory, while the overlay is created"},
	{rootDir, "mount point of a session's own root"},
}

// scratchDirs are directories in which everybody may write on a host that has them. In a jail they are links to the private /tmp.
var scratchDirs = []struct{ path, reason string }{
	{"/run/lock", "locks of scripts and terminals"},
	{"/var/lib/php/sessions", "sessions of Debian's PHP"},
}

// lastingDirs are empty directories in a session's own root, for programs to write to: hier(7).
var lastingDirs = []string{"/media", "/mnt", "/opt", "/srv", "/var/cache", "/var/lib", "/var/log", "/var/spool"}

// Host computes the tree of a jail from the running host. It opens, reads and stats files and changes nothing. It
// checks first what depends on the options alone. The same host and options give the same tree, so a caller may keep
// it until the host's /etc changes.
func Host(o Options) (Tree, error) {
	if o.Host == "" {
		o.Host = "/"
	}
	if err := o.check(); err != nil {
		return Tree{}, err
	}
	b := &builder{seen: map[string]bool{}, hold: o.Hold}
	var st unix.Stat_t
	fd, err := openat(unix.AT_FDCWD, o.Host, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		b.root = os.NewFile(uintptr(fd), o.Host)
		defer b.root.Close()
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return Tree{}, fmt.Errorf("%w: open %s: %w", ErrHost, o.Host, err)
	}
	b.uid = st.Uid
	return b.build(o)
}

// check returns an error for options that no host could satisfy.
func (o Options) check() error {
	if why := badPath(o.Host); why != "" {
		return fmt.Errorf("%w: host %q: %s", ErrPath, o.Host, why)
	}
	for _, p := range []string{o.Repo, o.Common} {
		if p == "" {
			continue
		}
		if err := CheckRepoPath(p); err != nil {
			return err
		}
	}
	for _, p := range o.EtcFiles {
		if why := badPath(p); why != "" || p == "/etc" || !below(p, "/etc") {
			return fmt.Errorf("%w: %q (hint: a path below /etc)", ErrPath, p)
		}
	}
	for _, t := range o.Toolchains {
		if err := errors.Join(checkToolchain(t, o.Repo), checkOverlap(t, o.Common)); err != nil {
			return err
		}
	}
	return o.JobUIDs.check()
}

// build adds all parts of the tree in the order in which Write needs them.
func (b *builder) build(o Options) (Tree, error) {
	for _, d := range emptyDirs {
		b.dir(d.path)
	}
	if o.Lasting {
		b.privateDirs()
		for _, p := range lastingDirs {
			b.dir(p)
		}
	}
	for _, d := range Private {
		if !below(d.Path, "/dev") { // WriteDev creates those of /dev, which is mounted over
			b.dir(d.Path)
		}
	}
	b.link("/var/run", "../run")
	b.add(Entry{Path: MaskFile})
	for _, d := range systemDirs {
		if err := b.system(d.path); err != nil {
			return Tree{}, fmt.Errorf("%w: %s: %w", ErrHost, d.path, err)
		}
	}
	// Sorted, a directory precedes those inside it, which are then bound already.
	for _, t := range slices.Sorted(slices.Values(o.Toolchains)) {
		if err := b.toolchain(t); err != nil {
			return Tree{}, err
		}
	}
	for _, p := range []string{o.Common, o.Repo} {
		switch {
		case p == "" || b.bound(p):
		case below(p, HomeDir): // created per job, so that jobs without the repository have no trace of it in their home
		case isPrivate(p):
			b.tree.Late = append(b.tree.Late, Bind{Target: p})
		default:
			b.dir(p)
		}
	}
	b.scratch(o)
	b.generate(o)
	if err := b.copyEtc(o); err != nil {
		return Tree{}, err
	}
	return b.tree, nil
}

// scratch adds scratchDirs as on the host, except where something is mounted.
func (b *builder) scratch(o Options) {
	mounted := append(slices.Clone(o.Toolchains), o.Repo, o.Common)
	for _, d := range scratchDirs {
		within := func(p string) bool { return below(p, d.path) }
		if b.hostDir(d.path)&0o002 != 0 && !slices.ContainsFunc(mounted, within) {
			b.link(d.path, "/tmp")
		}
	}
	if b.seen["/run/lock"] {
		b.link("/var/lock", "../run/lock")
	}
}

// hostDir returns the mode of a directory of the host, 0 if there is none.
func (b *builder) hostDir(p string) uint32 {
	fd, err := b.open(p, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Mode
}

// system adds one of systemDirs, as a link or a bind as on the host.
func (b *builder) system(p string) error {
	target, err := readlinkat(int(b.root.Fd()), p[1:])
	if err == nil && inSystem(path.Join("/", target)) {
		b.link(p, target)
		return nil
	}
	// Everything else, even a link to another disk, is bound from its location on the host, resolved with the host
	// tree as root.
	fd, err := b.open(p, unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if errors.Is(err, unix.ENOENT) && p != "/usr" {
		return nil
	}
	if err != nil {
		return err
	}
	opened := os.NewFile(uintptr(fd), p)
	defer opened.Close()
	if names, _ := opened.Readdirnames(1); len(names) == 0 && p == "/opt" {
		return nil
	}
	source, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	b.bind(source, p)
	return nil
}

// inSystem reports whether p lies in one of systemDirs, so that a link to it resolves in the jail.
func inSystem(p string) bool {
	for _, d := range systemDirs {
		if d.path != "/opt" && below(p, d.path) {
			return true
		}
	}
	return false
}

// toolchain adds a directory that passed checkToolchain.
func (b *builder) toolchain(p string) error {
	fd, err := b.open(p, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s is %w: a component of the path is a link (hint: use the path that it points to)", p, ErrToolchain)
	}
	if err != nil {
		return fmt.Errorf("%s is %w: %w", p, ErrToolchain, err)
	}
	defer unix.Close(fd)
	if b.bound(p) {
		return nil
	}
	if why := refused(p, nil); why != "" {
		return fmt.Errorf("%s is %w, because %s (hint: use the toolchain's own directory)", p, ErrToolchain, why)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat toolchain %s: %w", p, err)
	}
	if st.Mode&0o005 != 0o005 {
		return fmt.Errorf("%s is %w: jobs cannot read it with mode %04o (hint: chmod o+rx)", p, ErrToolchain, st.Mode&0o7777)
	}
	source := filepath.Join(b.root.Name(), p)
	if b.hold != nil {
		if source, err = b.hold(p, fd); err != nil {
			return fmt.Errorf("%s is %w: %w", p, ErrToolchain, err)
		}
	}
	if !isPrivate(p) {
		b.bind(source, p)
		return nil
	}
	// A job's private directory would hide it, so it is bound elsewhere, and from there into each job.
	aside := fmt.Sprintf("%s/%d", lateDir, len(b.tree.Late))
	b.bind(source, aside)
	b.tree.Late = append(b.tree.Late, Bind{aside, p})
	return nil
}

// Mount points that the jail's init and the jobs' reapers use by the same names.
const (
	// LayerDir is where a job that reads a session's layer finds it.
	LayerDir = "/var/layer"

	lowerDir = "/var/lower"
	rootDir  = "/var/root"
)

// Image returns what any root file system must have so that jobs can run in it: mount points, masks for /proc, a
// home, and temporary directories. It is written over the existing contents. If connected is set, it also has the resolver's
// setting of jobs that may reach hosts.
func Image(connected bool) Tree {
	b := &builder{seen: map[string]bool{}}
	if connected {
		b.dir("/etc")
		b.add(Entry{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte(doorResolv)})
	}
	for _, p := range []string{"/dev", "/proc", "/sys", "/run", "/var", MaskDir} {
		b.dir(p)
	}
	b.add(Entry{Path: MaskFile})
	b.privateDirs()
	return b.tree
}

// privateDirs adds the directories that replace those of Private in a session's own root, and the home in them.
func (b *builder) privateDirs() {
	for _, d := range Private {
		if !below(d.Path, "/dev") {
			b.add(Entry{Path: d.Path, Mode: fs.ModeDir | d.Mode})
		}
	}
	b.add(Entry{Path: HomeDir, Mode: fs.ModeDir | 0o700})
}

// lateDir contains the toolchains that lie in private directories.
const lateDir = "/var/toolchain"

// isPrivate reports whether p lies in a directory that is private to each job.
func isPrivate(p string) bool {
	return slices.ContainsFunc(Private, func(d Dir) bool { return below(p, d.Path) })
}
