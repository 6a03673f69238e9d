package rootfs

import (
	"io/fs"
	"os"
	"slices"
)

// builder assembles a tree.
type builder struct {
	tree Tree
	root *os.File // the host's root, O_PATH
	uid  uint32   // its owner
	seen map[string]bool
	hold func(path string, dir int) (string, error)
}

// bound reports whether p is visible in the jail through a bind.
func (b *builder) bound(p string) bool {
	holds := func(x Bind) bool { return below(p, x.Target) }
	return slices.ContainsFunc(b.tree.Binds, holds) || slices.ContainsFunc(b.tree.Late, holds)
}

// bind adds a bind and its mount point.
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

// add adds an entry. The first entry for a path wins, so generated files take precedence over copied ones.
func (b *builder) add(e Entry) {
	if !b.seen[e.Path] {
		b.seen[e.Path] = true
		b.tree.Entries = append(b.tree.Entries, e)
	}
}
