// Package layer looks at what the jobs of a session changed, and applies it to the repository: what corral-layer does as
// "changes". It runs as a job itself, as the session's user without privileges, with the upper directory of the session's
// overlay read-only at one place and the repository at another. What it finds it tells in a [stream].
//
// The changes are the difference between two trees: the overlay as jobs see it, and the repository. A file whose content
// and permissions are those of the repository is none, however often it was written. Times, owners, set-id bits, extended
// attributes and access control lists are not compared and not carried over, except that what is applied keeps the layer's
// time of modification.
//
// Both trees are hostile and may change at any time:
//
//   - each step opens one name below an open directory, with O_NOFOLLOW. No link is ever followed, in either tree. Of what
//     is no directory, link or regular file only the metadata is asked for.
//   - what cannot be looked at within [Bounds], or at all, is told as incomplete when it is listed, and a conflict when it
//     is applied.
//   - a whiteout (a character device 0:0), the attributes user.overlay.opaque and user.overlay.origin are the kernel's words
//     in the upper directory (Documentation/filesystems/overlayfs.rst). Others of its words, for features that corral's overlays
//     are mounted without, make a path one that is not applied.
//
// Apply checks everything before it writes anything, checks each path again when its turn comes, and replaces each file by
// a rename. It can be killed at any time and done again: what was applied already is no difference any more. Additions
// come first and deletions last, so that of a file that was moved there is one at each moment.
//
// The package logs nothing and starts no goroutine.
package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/changes/stream"
	"corral/isolate/scan"
)

// Bounds limits one look at a layer. A zero field stands for its default.
type Bounds struct {
	Entries int           // names read, in both trees; default 2,000,000
	Depth   int           // directories below each other; default 256
	Bytes   int64         // of content that is compared; default 8 GiB. Applying compares whatever there is
	Time    time.Duration // default 30 s, of an apply 1 h
	List    int           // entries in the stream, sensitive ones as many again; default 1,000,000
	File    int64         // bytes of one side of a file in a diff; default 4 MiB
	Diff    int64         // bytes of all contents in a diff; default 64 MiB
	// Contents is how many bytes of all contents are in a list; by default it brings none.
	Contents int64
}

// maxDepth is the deepest that can be asked for: each level holds two descriptors.
const maxDepth = 512

func (b Bounds) withDefaults(long time.Duration) Bounds {
	set(&b.Entries, 2_000_000)
	set(&b.Depth, 256)
	set(&b.Bytes, 8<<30)
	set(&b.Time, long)
	set(&b.List, 1_000_000)
	set(&b.File, 4<<20)
	set(&b.Diff, 64<<20)
	b.Depth = min(b.Depth, maxDepth)
	return b
}

func set[T int | int64 | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Options say what is looked at.
type Options struct {
	Upper string // the upper directory of the overlay
	Repo  string // the repository, as it is
	// Paths are those that it is about, with all below them; none is all. They are relative to the repository, clean, and
	// none of them is below another one.
	Paths  []string
	Bounds Bounds
	// Digest has the stream end with the digest of all changes. Each file of the layer that differs is read for it.
	Digest bool
}

// errNoChange is a path that was asked for and has no change.
var errNoChange = errors.New("no change at this path")

// List tells of each path that differs. It brings contents, too, if it is to and as far as it may.
func List(ctx context.Context, o Options, w *stream.Writer) error {
	b := o.Bounds.withDefaults(30 * time.Second)
	v := &differ{lister: lister{w: w, left: b.List, leftSensitive: b.List}, file: b.File, total: b.Contents}
	if b.Contents <= 0 {
		return o.walk(ctx, b, &v.lister, func(k *walk) { v.walk, k.compare = k, true })
	}
	return o.walk(ctx, b, v, func(k *walk) { v.walk, k.compare = k, true })
}

// Diff tells of each path that differs, below directories that are gone, too, and brings the contents of files and links.
func Diff(ctx context.Context, o Options, w *stream.Writer) error {
	b := o.Bounds.withDefaults(2 * time.Minute)
	v := &differ{lister: lister{w: w, left: b.List, leftSensitive: b.List}, file: b.File, total: b.Diff}
	return o.walk(ctx, b, v, func(k *walk) { v.walk, k.compare, k.expand = k, true, true })
}

// A looker is a visitor that counts.
type looker interface {
	visitor
	sum() *stream.Sum
	writer() *stream.Writer
}

// walk has v see all that differs, and ends the stream.
func (o Options) walk(ctx context.Context, b Bounds, v looker, prepare func(*walk)) error {
	t, err := o.open()
	if err != nil {
		return err
	}
	defer t.close()
	k := newWalk(ctx, b, o.Paths, v)
	prepare(k)
	if o.Digest {
		k.sum = newDigest()
	}
	if err := k.run(t); err != nil {
		return err
	}
	s := v.sum()
	s.Incomplete, s.Digest = k.incomplete, k.sum.result(!k.incomplete)
	if path, ok := k.unmatched(); ok && !k.incomplete {
		s.Failed = failure(path, errNoChange)
	}
	return v.writer().End(s)
}

// trees are the two, open.
type trees struct{ upper, lower *dir }

func (o Options) open() (*trees, error) {
	upper, err := openRoot(o.Upper)
	if err != nil {
		return nil, fmt.Errorf("the layer: %w", err)
	}
	lower, err := openRoot(o.Repo)
	if err != nil {
		upper.close()
		return nil, fmt.Errorf("the repository: %w", err)
	}
	return &trees{upper, lower}, nil
}

func (t *trees) close() {
	t.upper.close()
	t.lower.close()
}

// root is where a walk begins. The permissions of the root itself are nobody's matter.
func (t *trees) root() *pair {
	return &pair{upper: t.upper, lower: t.lower, rules: scan.RepositoryRules()}
}

// failure is why something was not done, for a stream's sum: the path first, quoted.
func failure(path string, err error) string { return fmt.Sprintf("%q: %v", path, err) }

// isDir and its like say of what type something is.
func isDir(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFDIR }

func isFile(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFREG }

func isLink(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK }

// isWhiteout says whether something in the upper directory stands for a deletion.
func isWhiteout(st *unix.Stat_t) bool {
	return st != nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}
