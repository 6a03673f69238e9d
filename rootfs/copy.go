package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the copy of /etc. The supervisor holds it in memory, and so does the tmpfs of every jail.
const (
	maxFile  = 4 << 20  // bytes of one file; LibreOffice's settings have 2.2 MB
	maxTotal = 32 << 20 // bytes of all files
	maxCount = 4096     // files, links and directories
	maxDepth = 16       // directories below /etc
)

// copier reads the host's /etc. It descends one path component at a time and follows no link, so it cannot leave /etc.
type copier struct {
	*builder
	count     int
	bytes     int64
	transient bool // the copy may be another one the next time, and nobody would notice
	etc       *Etc
	quiet     bool              // what is not copied is not recorded
	accept    func([]byte) bool // whether to copy a file with this content; nil: any
}

// copyEtc adds the rows of etc that the host has, or the kept copy of them.
func (b *builder) copyEtc(o Options) error {
	fd, err := b.open("/etc", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return fmt.Errorf("%w: open /etc: %w", ErrHost, err)
	}
	top := os.NewFile(uintptr(fd), "/etc")
	defer top.Close()
	if kept, ok := o.Etc.get(&o, b.uid); ok {
		for _, e := range kept.entries {
			b.add(e)
		}
		b.tree.Skipped = append(b.tree.Skipped, kept.skipped...)
		return nil
	}
	entries, skipped := len(b.tree.Entries), len(b.tree.Skipped)
	version, _ := o.Etc.Changes()
	mounts, merr := mountsAt(o.Host)
	c := &copier{builder: b, etc: o.Etc, transient: merr != nil}
	names, err := c.list(top)
	if err != nil {
		return fmt.Errorf("%w: read /etc: %w", ErrHost, err)
	}
	if err := c.rows(top, names, o.EtcFiles); err != nil {
		return err
	}
	c.shipped(top, names)
	if !c.transient {
		o.Etc.put(etcCopy{
			host: o.Host, files: o.EtcFiles, uid: b.uid, version: version, mounts: mounts,
			entries: slices.Clone(b.tree.Entries[entries:]), skipped: slices.Clone(b.tree.Skipped[skipped:]),
		})
	}
	return nil
}

// list returns the names in a directory below /etc, or in /etc itself.
func (c *copier) list(d *os.File) ([]string, error) {
	c.etc.add(int(d.Fd()))
	return list(d)
}

// rows copies all rows of the table, and files that the operator names.
func (c *copier) rows(top *os.File, names, files []string) error {
	var more []etcRow
	for _, p := range files {
		more = append(more, etcRow{strings.TrimPrefix(p, "/etc/"), either, "the operator names it", false})
	}
	for _, r := range slices.Concat(etc, more) {
		before, count := len(c.tree.Skipped), c.count
		c.row(top, names, r, strings.Split(r.name, "/"))
		if r.needed && len(c.tree.Skipped) > before {
			s := c.tree.Skipped[before]
			return fmt.Errorf("%w: %s: %s (hint: %s)", ErrHost, s.Path, s.Reason, r.reason)
		}
		if p := "/etc/" + r.name; r.kind == either && len(c.tree.Skipped) == before && c.count == count && !c.seen[p] {
			c.skip(p, "does not exist")
		}
	}
	return nil
}

// row copies what matches the pattern in the directory d, whose names are given.
func (c *copier) row(d *os.File, names []string, r etcRow, pattern []string) {
	for _, name := range names {
		if ok, _ := path.Match(pattern[0], name); !ok { // TestTables checks the patterns
			continue
		}
		if len(pattern) == 1 {
			c.node(d, name, r.kind, 1)
			continue
		}
		c.within(d, name, func(sub *os.File, names []string) {
			c.row(sub, names, r, pattern[1:])
		})
	}
}

// node copies the entry name of the directory d.
func (c *copier) node(d *os.File, name string, want kind, depth int) {
	p := d.Name() + "/" + name
	if c.seen[p] {
		return // generated, or copied by an earlier row
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		c.failed(p, err)
		return
	}
	switch why := c.unfit(name, &st); {
	case why != "":
		c.skip(p, why)
	case c.count >= maxCount:
		c.skip(p, fmt.Sprintf("more than %d files", maxCount))
	case st.Mode&unix.S_IFMT == unix.S_IFLNK && c.accept == nil:
		c.symlink(d, name)
	case st.Mode&unix.S_IFMT == unix.S_IFREG && (want != subtree || depth > 1):
		c.regular(d, name)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR && want != plain && depth < maxDepth:
		c.count++
		c.within(d, name, func(sub *os.File, names []string) {
			c.dir(sub.Name())
			for _, n := range names {
				c.node(sub, n, subtree, depth+1)
			}
		})
	default:
		c.skip(p, "not the expected file type")
	}
}

// unfit returns the reason not to copy a node, "" if it may be copied. A world-writable file or one of another owner
// may have been planted to be read by another user's job; /etc has no legitimate files with set-id bits.
func (c *copier) unfit(name string, st *unix.Stat_t) string {
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	switch {
	case !printable(name):
		return "its name has control characters"
	case name == "private":
		return "a directory for keys"
	case st.Uid != c.uid:
		return "not owned by root"
	case !link && st.Mode&unix.S_IROTH == 0:
		return "not readable by everybody"
	case !link && st.Mode&unix.S_IWOTH != 0:
		return "writable by everybody"
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return "set-id"
	}
	return ""
}

// within opens the directory name of d and calls f with it and its names. It skips a link of that name.
func (c *copier) within(d *os.File, name string, f func(sub *os.File, names []string)) {
	p := d.Name() + "/" + name
	fd, err := openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		c.failed(p, err)
		return
	}
	sub := os.NewFile(uintptr(fd), p)
	defer sub.Close()
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	names, lerr := c.list(sub)
	switch why := c.unfit(name, &st); {
	case err != nil || lerr != nil:
		c.failed(p, errors.Join(err, lerr))
	case why != "":
		c.skip(p, why)
	case st.Mode&unix.S_IXOTH == 0:
		c.skip(p, "not searchable by everybody")
	default:
		f(sub, names)
	}
}

// symlink copies a link without following it.
func (c *copier) symlink(d *os.File, name string) {
	p := d.Name() + "/" + name
	target, err := readlinkat(int(d.Fd()), name)
	switch {
	case err != nil:
		c.failed(p, err)
	case target == "" || !printable(target):
		c.skip(p, "a link with an empty target or control characters in it")
	default:
		c.count++
		c.link(p, target)
	}
}

// regular copies a file. It checks the file again once it is open.
func (c *copier) regular(d *os.File, name string) {
	p := d.Name() + "/" + name
	// O_NONBLOCK: do not block if a FIFO has replaced the file.
	fd, err := openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		c.failed(p, err)
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		c.failed(p, err)
		return
	}
	c.transient = c.transient || hasOtherNames(fd)
	data, why := c.content(fd, &st)
	if why == "" {
		why = c.unfit(name, &st)
	}
	if why == "" && c.accept != nil && !c.accept(data) {
		why = "changed since it was installed"
	}
	if why != "" {
		c.skip(p, why)
		return
	}
	c.count++
	c.bytes += int64(len(data))
	c.way(p)
	c.add(Entry{Path: p, Mode: fs.FileMode(st.Mode & 0o755), Data: data})
}

// way adds the directories between /etc and p.
func (c *copier) way(p string) {
	for i := len("/etc/"); i < len(p); i++ {
		if p[i] == '/' {
			c.dir(p[:i])
		}
	}
}

// content reads a whole file, or returns the reason not to copy it.
func (c *copier) content(fd int, st *unix.Stat_t) (data []byte, why string) {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, "changed while it was read"
	case st.Size > maxFile:
		return nil, fmt.Sprintf("larger than %d bytes", maxFile)
	case c.bytes+st.Size > maxTotal:
		return nil, fmt.Sprintf("all files together are larger than %d bytes", maxTotal)
	}
	// One byte more than expected, to detect a file that has grown.
	data = make([]byte, st.Size+1)
	n, err := readAll(fd, data)
	switch {
	case err != nil:
		c.transient = true
		return nil, err.Error()
	case int64(n) != st.Size:
		return nil, "changed while it was read"
	// The host should not have a key beside its certificate in a world-readable file; do not pass the mistake on to
	// jobs.
	case bytes.Contains(data[:n], []byte("PRIVATE KEY-----")):
		return nil, "contains a private key"
	}
	return data[:n], ""
}

// failed records an error. A link or a file in place of a directory remains one until it is replaced, so a copy with
// these errors can be kept.
func (c *copier) failed(p string, err error) {
	c.skip(p, err.Error())
	c.transient = c.transient || !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP)
}

// skip records a node that was not copied. The number of records is limited.
func (c *copier) skip(p, why string) {
	if len(c.tree.Skipped) < maxCount && !c.quiet {
		c.tree.Skipped = append(c.tree.Skipped, Skip{p, why})
	}
}
