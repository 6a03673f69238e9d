package scan

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// noRow is the row of an entry that is part of the structure but not sensitive by any rule.
const noRow = -1

// The entries that make a directory look like a bare repository: see is_git_directory in git's setup.c.
const (
	hasHead = 1 << iota
	hasObjects
	hasRefs
	hasCommon // a file commondir, which says where the objects and refs are
)

// A zone contains the rules for the entries of one kind of directory.
type zone struct {
	kids    map[string]kid
	base    *zone // fallback for names that are not in kids
	rest    *zone // zone of other directories; nil: they are skipped
	all     int16 // the row that makes other entries sensitive, or noRow
	tree    bool  // an ordinary directory, which may turn out to be a bare repository; walked after others
	samples bool  // *.sample is not sensitive
	// ends contains the rules for names with an extension, by that; each key starts with a dot.
	ends map[string]kid
}

// A kid is the rules' result for one name.
type kid struct {
	row      int16
	track    bool  // sensitive if it is not a directory
	trackDir bool  // sensitive if it is a directory
	presence bool  // only its existence counts, not its content
	bareOnly bool  // applies only if the directory is a bare repository
	listed   bool  // named by a rule
	mark     uint8 // which of hasHead … it sets
	dir      *zone // its zone if it is a directory; nil: skipped
}

// compile converts a table to zones and returns that of the root.
func compile(table []Rule) *zone {
	tree := &zone{kids: map[string]kid{}, all: noRow, tree: true}
	tree.rest = tree
	// Directories that git does not use lie between modules and a submodule a/b, so they are treated as git directories.
	git := &zone{kids: map[string]kid{}, all: noRow}
	git.rest = git
	names := &zone{all: gitRow(table), rest: git} // for modules and worktrees
	for _, name := range []string{"modules", "worktrees"} {
		git.kids[name] = kid{row: gitRow(table), track: true, listed: true, dir: names}
	}
	bare := map[string]kid{"head": {row: noRow}}
	for i, r := range table {
		row := int16(i)
		switch {
		case r.In == Tree && r.Path == ".git":
			// git~1 is the short name of .git on FAT and NTFS.
			tree.kids[".git"] = kid{row: row, track: true, trackDir: true, listed: true, dir: git}
			tree.kids["git~1"] = tree.kids[".git"]
		case r.In == Tree && r.Path[0] == '*':
			if tree.ends == nil {
				tree.ends = map[string]kid{}
			}
			tree.ends[r.Path[1:]] = kid{row: row, track: true, listed: true}
		case r.In == Tree:
			tree.add(r.Path, row, tree, tree)
		case r.In == GitDir:
			git.add(r.Path, row, nil, nil)
		case r.In == Bare:
			bare[r.Path] = kid{row: row, track: true, presence: true, listed: true}
		}
	}
	// Branches, like files, have any name: without this refs/heads/config would be sensitive. The other directories are
	// skipped because they are large.
	for _, name := range []string{"refs", "logs", "lfs", "annex"} {
		if _, ok := git.kids[name]; !ok {
			git.kids[name] = kid{row: noRow, listed: true}
		}
	}
	if h, ok := git.kids["hooks"]; ok {
		h.dir.samples = true
	}
	// Checkouts that an agent creates for itself are ordinary trees, not settings.
	if c, ok := tree.kids[".claude"]; ok {
		c.dir.kids["worktrees"] = kid{row: c.row, track: true, listed: true, dir: tree}
	}
	addBare(tree, git, bare)
	return tree
}

// addBare adds the names of a git directory to every ordinary directory; they apply if it turns out to be one.
func addBare(tree, git *zone, bare map[string]kid) {
	for name, k := range git.kids {
		bare[name] = k
	}
	marks := map[string]uint8{"head": hasHead, "objects": hasObjects, "refs": hasRefs, "commondir": hasCommon}
	for name, k := range bare {
		k.bareOnly, k.mark = true, marks[name]
		// A job can turn the root into a look-alike; that must not hide what is in the project's directories of these
		// names.
		switch {
		case k.dir == nil && k.row == noRow:
			k.dir = tree
		case k.dir != nil && k.dir.all == noRow && k.dir.rest == nil:
			open := *k.dir
			open.base, open.rest, open.tree = tree, tree, true
			k.dir = &open
		}
		tree.kids[name] = k
	}
}

func gitRow(table []Rule) int16 {
	for i, r := range table {
		if r.In == Tree && r.Path == ".git" {
			return int16(i)
		}
	}
	return noRow
}

// add adds a rule's path. Directories on the way, and below one that is sensitive as a whole, fall back to base; those
// that no rule names have zone rest.
func (z *zone) add(path string, row int16, base, rest *zone) {
	name, below, deeper := strings.Cut(path, "/")
	k, ok := z.kids[name]
	if !ok {
		k.row = row
	}
	k.track, k.listed = true, true
	switch {
	case !deeper:
	case below == "":
		all := &zone{kids: map[string]kid{}, base: base, all: row}
		all.rest = all
		k.row, k.trackDir, k.dir = row, true, all
	default:
		if k.dir == nil {
			k.dir = &zone{kids: map[string]kid{}, base: base, rest: rest, all: noRow, tree: base != nil}
		}
		k.dir.add(below, row, base, rest)
	}
	z.kids[name] = k
}

// lookup returns the rules' result for a name.
func (z *zone) lookup(name []byte) kid {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], name)
	if ok {
		for b := z; b != nil; b = b.base {
			k, ok := b.kids[string(folded)]
			if !ok || k.bareOnly && !z.tree {
				continue
			}
			if k.dir == nil && k.row != noRow {
				k.dir = z.rest // a directory with the name of a sensitive file
			}
			return k
		}
	}
	if k, ok := z.byEnd(name); ok {
		return k
	}
	return z.other(name)
}

// rowOf returns the row by which a name is sensitive, or a directory of this name in the tree is above something sensitive; else noRow.
func (z *zone) rowOf(name []byte, directory bool) int16 {
	k := z.lookup(name)
	if k.bareOnly {
		k = z.other(name)
	}
	if directory && k.trackDir || k.track && (!directory || z.tree) {
		return k.row
	}
	return noRow
}

// byEnd looks up the rule for the name's extension.
func (z *zone) byEnd(name []byte) (kid, bool) {
	for b := z; b != nil; b = b.base {
		if b.ends == nil || bytes.IndexByte(name, '.') < 0 {
			continue
		}
		var buf [256]byte
		folded := foldAll(buf[:0], name)
		if dot := strings.LastIndexByte(string(folded), '.'); dot > 0 {
			if k, ok := b.ends[string(folded[dot:])]; ok {
				k.dir = z.rest // a directory with such a name
				return k, true
			}
		}
	}
	return kid{}, false
}

// other returns the result for a name that no rule contains.
func (z *zone) other(name []byte) kid {
	k := kid{row: z.all, dir: z.rest}
	sample := z.samples && strings.HasSuffix(string(name), ".sample")
	k.track = z.all != noRow && !sample
	k.trackDir = k.track
	return k
}

// lookalike reports whether git takes a directory with these entries for a repository.
func lookalike(marks uint8) bool {
	return marks&hasHead != 0 && (marks&hasCommon != 0 || marks&(hasObjects|hasRefs) == hasObjects|hasRefs)
}

// maxFolded is greater than the length of the longest name in the table.
const maxFolded = 48

// fold appends the name to dst in the form in which the most permissive file system would compare it: in lower case,
// without the code points that HFS+ ignores and the trailing dots and blanks that NTFS drops (CVE-2014-9390, git's utf8.c
// and path.c). It returns false if the result cannot match any rule.
func fold(dst, name []byte) ([]byte, bool) {
	for len(name) > 0 {
		c, n := foldRune(name)
		switch {
		case c == unfolded:
			return dst, false // no rule contains such a character
		case c != 0:
			dst = append(dst, c)
		}
		name = name[n:]
		if len(dst) >= maxFolded {
			return dst, false
		}
	}
	return trimEnd(dst), true
}

// foldAll is like fold for a name of any length; characters that no rule contains become question marks.
func foldAll(dst, name []byte) []byte {
	for len(name) > 0 {
		c, n := foldRune(name)
		switch {
		case c == unfolded:
			dst = append(dst, '?')
		case c != 0:
			dst = append(dst, c)
		}
		name = name[n:]
	}
	return trimEnd(dst)
}

// unfolded stands for a character that no rule contains.
const unfolded = 0xff

// foldRune folds the first rune of name, which has n bytes: to 0 if it is ignored, otherwise to an ASCII character or
// unfolded.
func foldRune(name []byte) (c byte, n int) {
	c = name[0]
	if c < utf8.RuneSelf {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c, 1
	}
	r, n := utf8.DecodeRune(name)
	switch {
	case ignorable(r):
		return 0, n
	case r == 'ſ': // U+017F folds to s
		return 's', n
	case r == '\u212a': // the Kelvin sign folds to k
		return 'k', n
	}
	return unfolded, n
}

func trimEnd(name []byte) []byte {
	for len(name) > 0 && (name[len(name)-1] == '.' || name[len(name)-1] == ' ') {
		name = name[:len(name)-1]
	}
	return name
}

// ignorable reports whether HFS+ ignores the code point in comparisons: next_hfs_char in git's utf8.c.
func ignorable(r rune) bool {
	return 0x200c <= r && r <= 0x200f || 0x202a <= r && r <= 0x202e || 0x206a <= r && r <= 0x206f || r == 0xfeff
}
