package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the copy of /etc. It is held in memory by the supervisor and by
// every jail's tmpfs, and read anew for each.
const (
	maxFile  = 1 << 20  // bytes of one file
	maxTotal = 32 << 20 // bytes of all files
	maxCount = 4096     // files, links and directories
	maxDepth = 16       // directories below /etc
)

// copier reads the host's /etc. It goes down by one component at a time
// and follows no link, so it can not leave it.
type copier struct {
	*builder
	count int
	bytes int64
}

// copyEtc adds the rows of etc that the host has.
func (b *builder) copyEtc() error {
	fd, err := b.open("/etc", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return fmt.Errorf("%w: open /etc: %w", ErrHost, err)
	}
	top := os.NewFile(uintptr(fd), "/etc")
	defer top.Close()
	names, err := list(top)
	if err != nil {
		return fmt.Errorf("%w: read /etc: %w", ErrHost, err)
	}
	c := &copier{builder: b}
	for _, r := range etc {
		before := len(b.tree.Skipped)
		c.row(top, names, r, strings.Split(r.name, "/"))
		if r.needed && len(b.tree.Skipped) > before {
			s := b.tree.Skipped[before]
			return fmt.Errorf("%w: %s: %s (hint: %s)", ErrHost, s.Path, s.Reason, r.reason)
		}
	}
	return nil
}

// row copies what in the directory d, which has these names, matches the
// pattern.
func (c *copier) row(d *os.File, names []string, r etcRow, pattern []string) {
	for _, name := range names {
		if ok, _ := path.Match(pattern[0], name); !ok { // the table's patterns are tested
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

// node copies one name of the directory d.
func (c *copier) node(d *os.File, name string, want kind, depth int) {
	p := d.Name() + "/" + name
	if c.seen[p] {
		return // generated, or of an earlier row
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		c.skip(p, err.Error())
		return
	}
	switch why := c.unfit(name, &st); {
	case why != "":
		c.skip(p, why)
	case c.count >= maxCount:
		c.skip(p, fmt.Sprintf("more than %d files", maxCount))
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		c.symlink(d, name)
	case st.Mode&unix.S_IFMT == unix.S_IFREG && (want == plain || depth > 1):
		c.regular(d, name)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR && want == subtree && depth < maxDepth:
		c.count++
		c.within(d, name, func(sub *os.File, names []string) {
			c.dir(sub.Name())
			for _, n := range names {
				c.node(sub, n, subtree, depth+1)
			}
		})
	default:
		c.skip(p, "not of the kind looked for")
	}
}

// unfit says why a node is not for jobs, "" if it is. A world-writable file
// or one of another owner may have been put there to be read by somebody's
// job; a set-id bit has no business in /etc.
func (c *copier) unfit(name string, st *unix.Stat_t) string {
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	switch {
	case !printable(name):
		return "a name with control characters"
	case name == "private":
		return "a directory of keys"
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

// within opens the directory name of d and calls f with it and its names. A
// link in its place is skipped.
func (c *copier) within(d *os.File, name string, f func(sub *os.File, names []string)) {
	p := d.Name() + "/" + name
	fd, err := openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(p, err.Error())
		return
	}
	sub := os.NewFile(uintptr(fd), p)
	defer sub.Close()
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	names, lerr := list(sub)
	switch why := c.unfit(name, &st); {
	case err != nil || lerr != nil:
		c.skip(p, errors.Join(err, lerr).Error())
	case why != "":
		c.skip(p, why)
	case st.Mode&unix.S_IXOTH == 0:
		c.skip(p, "not open to everybody")
	default:
		f(sub, names)
	}
}

// symlink copies a link as a link.
func (c *copier) symlink(d *os.File, name string) {
	p := d.Name() + "/" + name
	target, err := readlinkat(int(d.Fd()), name)
	switch {
	case err != nil:
		c.skip(p, err.Error())
	case target == "" || !printable(target):
		c.skip(p, "a link to no usable path")
	default:
		c.count++
		c.link(p, target)
	}
}

// regular copies a file, which is looked at again once it is open.
func (c *copier) regular(d *os.File, name string) {
	p := d.Name() + "/" + name
	// O_NONBLOCK: should a FIFO have taken the file's place, do not wait.
	fd, err := openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(p, err.Error())
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		c.skip(p, err.Error())
		return
	}
	data, why := c.content(fd, &st)
	if why == "" {
		why = c.unfit(name, &st)
	}
	if why != "" {
		c.skip(p, why)
		return
	}
	c.count++
	c.bytes += int64(len(data))
	c.add(Entry{Path: p, Mode: fs.FileMode(st.Mode & 0o755), Data: data})
}

// content reads a file whole, or says why not.
func (c *copier) content(fd int, st *unix.Stat_t) (data []byte, why string) {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, "changed while it was read"
	case st.Size > maxFile:
		return nil, fmt.Sprintf("larger than %d bytes", maxFile)
	case c.bytes+st.Size > maxTotal:
		return nil, fmt.Sprintf("all files together are larger than %d bytes", maxTotal)
	}
	// One byte more than there should be: the read that finds the end.
	data = make([]byte, st.Size+1)
	n, err := readAll(fd, data)
	switch {
	case err != nil:
		return nil, err.Error()
	case int64(n) != st.Size:
		return nil, "changed while it was read"
	// A key and its certificate in one world-readable file is a mistake of
	// the host's that jobs need not profit by.
	case bytes.Contains(data[:n], []byte("PRIVATE KEY-----")):
		return nil, "holds a private key"
	}
	return data[:n], ""
}

// skip notes what was not copied. The note itself is bounded.
func (c *copier) skip(p, why string) {
	if len(c.tree.Skipped) < maxCount {
		c.tree.Skipped = append(c.tree.Skipped, Skip{p, why})
	}
}
