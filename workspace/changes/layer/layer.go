// Package layer compares the layer of a session with the repository, and applies its changes: the "changes" command
// of corral-layer. It runs as a job itself, as the session's unprivileged user, with the upper directory of the
// session's overlay and the repository, both read-only unless it applies changes. It writes its results to a [stream].
//
// The changes are the difference between two trees: the overlay as jobs see it, and the repository. A file with the
// content and permissions of the repository's is not a change, however often it was written. Times, owners, set-id
// bits, extended attributes and access control lists are not compared and not copied, except that applied files keep
// the layer's modification time. A file that replaces one of the repository gets that one's group and access control list. If
// these cannot be kept, the file's group gets at most the permissions of all others.
//
// Both trees are hostile and may change at any time:
//
//   - Each step opens one name below an open directory, with O_NOFOLLOW. No link is ever followed, in either tree.
//     Files other than directories, links and regular files are only inspected with lstat.
//   - A sensitive link of the repository makes what it leads to sensitive, by the rules and bounds of package scan.
//   - What cannot be examined, at all or within [Bounds], makes a list incomplete, and is a conflict for an apply.
//   - A whiteout (a character device 0:0) and the attributes user.overlay.opaque and user.overlay.origin are written
//     by the kernel to the upper directory (Documentation/filesystems/overlayfs.rst). Attributes for features that
//     corral's overlays are mounted without make a path a conflict.
//
// Apply checks everything before it writes anything, checks each path again directly before it is written, and
// replaces each file by a rename. It can be killed at any time and repeated: applied changes are no longer
// differences. The only exception are several names of one file that a job has removed or replaced: the kernel then sets
// the time of those that are left, as if the owner had changed them, and they are in conflict. Additions come first and deletions
// last, so that a moved file exists under at least one name at any moment. Before it writes to the repository, Apply removes the
// attribute user.overlay.origin from files that jobs have moved. At its end, the layer has nothing left of what was applied: see base.
//
// The package logs nothing and starts no goroutine.
package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"corral/workspace/changes/stream"
)

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
		k.sum, k.bytes = newDigest(), unlimited
	}
	if err := k.run(t); err != nil {
		return err
	}
	s := v.sum()
	s.Incomplete, s.Missed, s.Digest = k.incomplete || t.links.Missed(), k.missed, k.sum.result(!k.incomplete)
	if path, ok := k.unmatched(); ok && !k.incomplete {
		s.Failed = failure(path, errNoChange)
	}
	return v.writer().End(s)
}

// failure formats an error with its path for Sum.Failed.
func failure(path string, err error) string { return fmt.Sprintf("%q: %v", path, err) }
