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

// Options says what the tree of a jail is made from.
type Options struct {
	// Host is the root of the host tree; "" is "/". Its owner, root on a real
	// host, is the one owner from whom files are copied.
	Host string
	// Repo is where in the jail the repository will be mounted: absolute,
	// clean, links resolved. "" is none. Its mount point is among the entries
	// unless it lies in a directory of [Private], where each job's launcher
	// makes it, or in a bind, where it exists.
	Repo string
	// Common is where the git directory will be mounted that Repo is a
	// worktree of, likewise.
	Common string
	// Toolchains are more host directories that jobs may read and execute,
	// at their own paths. Those within a bind or another toolchain add
	// nothing and are dropped.
	Toolchains []string
	// Hold, if there is one, is called with each toolchain that is bound and
	// an O_PATH descriptor of the directory that was looked at, open until it
	// returns. It returns the path to bind in its place. Without it the
	// source is the toolchain's own path, which whoever owns a directory
	// above it can have lead elsewhere by the time that it is bound.
	Hold func(path string, dir int) (source string, err error)
	// Etc keeps the copy of the host's /etc for the next tree; nil is none, and
	// all is read.
	Etc *Etc
	// Lasting makes the tree of a session's own root: its directories for
	// temporary files and homes are among the entries, with their modes.
	Lasting bool
	// JobUIDs are the uids of jobs, as they are numbered inside of the jail.
	JobUIDs IDRange
}

// IDRange is the uids, and equal gids, First to First+Count-1. The zero
// IDRange is empty.
type IDRange struct{ First, Count int }

// maxIDs bounds [IDRange.Count]: getpwuid(3) reads the file from its start,
// 0.26 ms for 4096 lines, and for 65536 lines 5.5 ms and 2.7 MB in each jail.
const maxIDs = 4096

// systemDirs are the directories of the host that hold its programs. A link
// into another row (merged /usr) stays a link, all else is bound.
var systemDirs = []struct{ path, reason string }{
	{"/usr", "programs, libraries, headers, data"},
	{"/bin", "#!/bin/sh"},
	{"/sbin", "ldconfig, ip"},
	{"/lib", "libraries where /usr is not merged, the loader of arm64"},
	{"/lib32", "libraries of a second architecture"},
	{"/lib64", "the loader of x86-64 by its absolute path"},
	{"/libx32", "libraries of a third architecture"},
	{"/opt", "software that is not of the distribution"},
}

// emptyDirs exist in every jail, besides those of [Private].
var emptyDirs = []struct{ path, reason string }{
	{"/dev", "mount point of the tmpfs of WriteDev"},
	{"/proc", "mount point of each job's own procfs"},
	{"/run", "the target of /var/run; nothing in it"},
	{"/sys", "programs that look for hardware find none"},
	{"/var", "holds /var/tmp"},
	{MaskDir, "what directories of /proc are covered with"},
	{LayerDir, "mount point of a session's layer, for what looks at it"},
	{lowerDir, "mount point of what lies below an overlay, while it is made"},
	{rootDir, "mount point of a session's own root"},
}

// lastingDirs are empty in a session's own root, for programs to write to: hier(7).
var lastingDirs = []string{"/media", "/mnt", "/opt", "/srv", "/var/cache", "/var/lib", "/var/log", "/var/spool"}

// builder puts a tree together.
type builder struct {
	tree Tree
	root *os.File // the host's root, O_PATH
	uid  uint32   // its owner
	seen map[string]bool
	hold func(path string, dir int) (string, error)
}

// Host computes the tree of a jail from the running host. It opens, reads and
// stats, and changes nothing. What depends on the options alone is checked
// first. The same host and options give the same tree, so a caller may keep
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

// check reports options that no host could satisfy.
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
	for _, t := range o.Toolchains {
		if err := errors.Join(checkToolchain(t, o.Repo), checkOverlap(t, o.Common)); err != nil {
			return err
		}
	}
	return o.JobUIDs.check()
}

// build makes all parts of the tree in the order in which Write needs them.
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
		if !below(d.Path, "/dev") { // /dev is mounted over; WriteDev makes them there
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
	// Sorted, a directory comes before those in it, which then are bound.
	for _, t := range slices.Sorted(slices.Values(o.Toolchains)) {
		if err := b.toolchain(t); err != nil {
			return Tree{}, err
		}
	}
	for _, p := range []string{o.Common, o.Repo} {
		switch {
		case p == "" || b.bound(p):
		case below(p, HomeDir): // made when a job comes: for one without the repository nothing is to be taken away in its home
		case isPrivate(p):
			b.tree.Late = append(b.tree.Late, Bind{Target: p})
		default:
			b.dir(p)
		}
	}
	b.generate(o.JobUIDs)
	if err := b.copyEtc(o); err != nil {
		return Tree{}, err
	}
	return b.tree, nil
}

// system adds one of systemDirs, in whichever way the host has it.
func (b *builder) system(p string) error {
	target, err := readlinkat(int(b.root.Fd()), p[1:])
	if err == nil && inSystem(path.Join("/", target)) {
		b.link(p, target)
		return nil
	}
	// Anything else, and be it a link to another disk, is bound where the
	// host has it, resolved as if the host tree were the root.
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

// inSystem reports whether p lies in one of systemDirs, where a link that
// points there will find it.
func inSystem(p string) bool {
	for _, d := range systemDirs {
		if d.path != "/opt" && below(p, d.path) {
			return true
		}
	}
	return false
}

// toolchain adds a directory that checkToolchain let pass.
func (b *builder) toolchain(p string) error {
	fd, err := b.open(p, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s is %w: a component of it is a link (hint: name what it points to)", p, ErrToolchain)
	}
	if err != nil {
		return fmt.Errorf("%s is %w: %w", p, ErrToolchain, err)
	}
	defer unix.Close(fd)
	if b.bound(p) {
		return nil
	}
	if why := refused(p, nil); why != "" {
		return fmt.Errorf("%s is %w, because %s (hint: name the directory of the toolchain alone)", p, ErrToolchain, why)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat toolchain %s: %w", p, err)
	}
	if st.Mode&0o005 != 0o005 {
		return fmt.Errorf("%s is %w: its mode %04o lets no job read it (hint: chmod o+rx)", p, ErrToolchain, st.Mode&0o7777)
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
	// A job's private directory would hide it, so each job gets it bound from aside.
	aside := fmt.Sprintf("%s/%d", lateDir, len(b.tree.Late))
	b.bind(source, aside)
	b.tree.Late = append(b.tree.Late, Bind{aside, p})
	return nil
}

// Mount points of the jail's init and of its jobs' reapers, which know them by the same names.
const (
	// LayerDir is where a job that looks at a session's layer finds it.
	LayerDir = "/var/layer"

	lowerDir = "/var/lower"
	rootDir  = "/var/root"
)

// Image is what a root file system of any origin must have so that jobs can run in it: mount points, what /proc is covered
// with, a home, and temporary directories. It goes over what is there.
func Image() Tree {
	b := &builder{seen: map[string]bool{}}
	for _, p := range []string{"/dev", "/proc", "/sys", "/run", "/var", MaskDir} {
		b.dir(p)
	}
	b.add(Entry{Path: MaskFile})
	b.privateDirs()
	return b.tree
}

// privateDirs adds the directories that a root of a session's own has in place of Private's, and the home in them.
func (b *builder) privateDirs() {
	for _, d := range Private {
		if !below(d.Path, "/dev") {
			b.add(Entry{Path: d.Path, Mode: fs.ModeDir | d.Mode})
		}
	}
	b.add(Entry{Path: HomeDir, Mode: fs.ModeDir | 0o700})
}

// lateDir holds the toolchains that lie in private directories.
const lateDir = "/var/toolchain"

// isPrivate reports whether p lies in a directory that each job has for
// itself.
func isPrivate(p string) bool {
	return slices.ContainsFunc(Private, func(d Dir) bool { return below(p, d.Path) })
}

// bound reports whether p is seen in the jail through a bind.
func (b *builder) bound(p string) bool {
	holds := func(x Bind) bool { return below(p, x.Target) }
	return slices.ContainsFunc(b.tree.Binds, holds) || slices.ContainsFunc(b.tree.Late, holds)
}

// bind adds a bind of a directory and its mount point.
func (b *builder) bind(source, target string) {
	b.dir(target)
	b.tree.Binds = append(b.tree.Binds, Bind{source, target})
}

// dir adds an empty directory.
func (b *builder) dir(p string) { b.add(Entry{Path: p, Mode: fs.ModeDir | 0o755}) }

// link adds a symbolic link.
func (b *builder) link(p, target string) {
	b.add(Entry{Path: p, Mode: fs.ModeSymlink | 0o777, Link: target})
}

// add adds an entry. Of two for one path the first wins: what is generated
// comes before what is copied.
func (b *builder) add(e Entry) {
	if !b.seen[e.Path] {
		b.seen[e.Path] = true
		b.tree.Entries = append(b.tree.Entries, e)
	}
}
