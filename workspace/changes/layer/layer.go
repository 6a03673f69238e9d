// Package layer compares the layer of a session with the repository, and applies its changes: the "changes" command
// of corral-layer. It runs as a job itself, as the session's unprivileged user, with the upper directory of the
// session's overlay mounted read-only, and the repository. It writes its results to a [stream].
//
// The changes are the difference between two trees: the overlay as jobs see it, and the repository. A file with the
// content and permissions of the repository's is not a change, however often it was written. Times, owners, set-id
// bits, extended attributes and access control lists are not compared and not copied, except that applied files keep
// the layer's modification time.
//
// Both trees are hostile and may change at any time:
//
//   - Each step opens one name below an open directory, with O_NOFOLLOW. No link is ever followed, in either tree.
//     Files other than directories, links and regular files are only inspected with lstat.
//   - What cannot be examined, at all or within [Bounds], makes a list incomplete, and is a conflict for an apply.
//   - A whiteout (a character device 0:0) and the attributes user.overlay.opaque and user.overlay.origin are written
//     by the kernel to the upper directory (Documentation/filesystems/overlayfs.rst). Attributes for features that
//     corral's overlays are mounted without make a path a conflict.
//
// Apply checks everything before it writes anything, checks each path again directly before it is written, and
// replaces each file by a rename. It can be killed at any time and repeated: applied changes are no longer
// differences. Additions come first and deletions last, so that a moved file exists under at least one name at any
// moment.
//
// The package logs nothing and starts no goroutine.
package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/workspace/changes/stream"
)

// Bounds limits one run. A zero field stands for its default.
type Bounds struct {
	Entries int           // names read, in both trees; default 2,000,000
	Depth   int           // nested directories; default 256
	Bytes   int64         // of compared content; default 8 GiB. An apply has no such bound
	Time    time.Duration // default 30 s for a list, 2 min for a diff, 1 h for an apply
	List    int           // entries in the stream, plus as many sensitive ones; default 1,000,000
	File    int64         // bytes of one side of a file in a diff; default 4 MiB
	Diff    int64         // bytes of all contents in a diff; default 64 MiB
	// Contents is the maximum of content bytes in a list; by default it has none.
	Contents int64
}

// maxDepth is the maximum of Bounds.Depth: each level holds two descriptors.
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

// Options select what to compare.
type Options struct {
	Upper string // the upper directory of the overlay
	Repo  string // the repository itself
	// Paths restricts the run to these paths and all below them; empty means everything. They are relative to the
	// repository, clean, and none is below another one.
	Paths  []string
	Bounds Bounds
	// Digest requests the digest of all changes at the end of the stream. For it each differing file of the layer is
	// read.
	Digest bool
}

// errNoChange is the error for a requested path without a change.
var errNoChange = errors.New("no change at this path")

// List writes an entry for each path that differs, and contents up to Bounds.Contents.
func List(ctx context.Context, o Options, w *stream.Writer) error {
	b := o.Bounds.withDefaults(30 * time.Second)
	v := &differ{lister: lister{w: w, left: b.List, leftSensitive: b.List}, file: b.File, total: b.Contents}
	if b.Contents <= 0 {
		return o.walk(ctx, b, &v.lister, func(k *walk) { v.walk, k.compare = k, true })
	}
	return o.walk(ctx, b, v, func(k *walk) { v.walk, k.compare = k, true })
}

// Diff writes an entry for each path that differs, also those below deleted directories, with the contents of files
// and links.
func Diff(ctx context.Context, o Options, w *stream.Writer) error {
	b := o.Bounds.withDefaults(2 * time.Minute)
	v := &differ{lister: lister{w: w, left: b.List, leftSensitive: b.List}, file: b.File, total: b.Diff}
	return o.walk(ctx, b, v, func(k *walk) { v.walk, k.compare, k.expand = k, true, true })
}

// A countingVisitor is a visitor with a sum and a stream.
type countingVisitor interface {
	visitor
	sum() *stream.Sum
	writer() *stream.Writer
}

// walk shows v all differences, and ends the stream.
func (o Options) walk(ctx context.Context, b Bounds, v countingVisitor, prepare func(*walk)) error {
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

// trees are the open roots of the layer and the repository.
type trees struct{ upper, lower *dir }

func (o Options) open() (*trees, error) {
	upper, err := openRoot(o.Upper)
	if err != nil {
		return nil, fmt.Errorf("open the layer: %w", err)
	}
	lower, err := openRoot(o.Repo)
	if err != nil {
		upper.close()
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	return &trees{upper, lower}, nil
}

func (t *trees) close() {
	t.upper.close()
	t.lower.close()
}

// root returns the start of a walk. The permissions of the root itself are not compared.
func (t *trees) root() *pair {
	return &pair{upper: t.upper, lower: t.lower, rules: scan.RepositoryRules()}
}

// failure formats an error with its path for Sum.Failed.
func failure(path string, err error) string { return fmt.Sprintf("%q: %v", path, err) }

func isDir(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFDIR }

func isFile(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFREG }

func isLink(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK }

// isWhiteout reports whether a file of the upper directory marks a deletion.
func isWhiteout(st *unix.Stat_t) bool {
	return st != nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}
