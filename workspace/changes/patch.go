package changes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"corral/job"
	"corral/workspace/changes/stream"
)

// Bounds of the contents of a patch. They are corral-layer's own; an answer beyond them is malformed.
const (
	maxPatchFile  = 4 << 20  // bytes of one side of a file
	maxPatchTotal = 64 << 20 // bytes of all
)

// A PatchSum summarizes a patch.
type PatchSum struct {
	Files int64 // paths in the patch
	// Left lists the first paths that differ and are not in the patch, with the reason. LeftCount counts all of them.
	Left      []LeftOut
	LeftCount int64
	// OfGit counts paths of git directories, for which git refuses patches. They are not in Left.
	OfGit int64
	// Incomplete is set if not everything could be examined.
	Incomplete bool
	// Digest is the digest of all changes, including those left out of the patch; zero unless Layer.Digest is set.
	Digest stream.Digest
}

// Whole reports whether the patch, applied to the repository, gives the files as the jobs see them, except for git
// directories.
func (s *PatchSum) Whole() bool { return s.LeftCount == 0 && !s.Incomplete }

// A LeftOut is a changed path that is not in the patch.
type LeftOut struct {
	Path, Reason string
}

// maxLeft bounds PatchSum.Left.
const maxLeft = 100

// Patch writes the changes of a layer at and below paths (none: all) as one patch for git apply, or for patch -p1 as
// far as it supports git's headers. Binary files are included in git's format.
//
// A patch cannot express every change; the sum lists what is left out: paths of git directories, which git refuses;
// files above 4 MiB, and those beyond 64 MiB in total; empty directories, permissions other than the execute bit,
// FIFOs and other special files. A deleted directory is expressed by the deletion of its files, as in git.
func Patch(ctx context.Context, r job.Runner, l Layer, w io.Writer, paths []string) (*PatchSum, error) {
	p := &patcher{w: bufio.NewWriter(w)}
	bound := l.within(patchTime)
	args := append(append([]string{"diff", "-time=" + bound.String()}, l.options()...), l.rest(paths)...)
	sum, err := l.run(ctx, r, job.ReadOnly, bound, args, p.record)
	if err == nil {
		err = p.end()
		p.filled("")
	}
	if err != nil {
		return nil, errors.Join(err, p.w.Flush())
	}
	if sum.Failed != "" {
		return nil, errors.New(sum.Failed)
	}
	p.sum.LeftCount += sum.More
	p.sum.Incomplete, p.sum.Digest = sum.Incomplete, sum.Digest
	return &p.sum, p.w.Flush()
}

// A patcher writes a patch, path by path.
type patcher struct {
	w     *bufio.Writer
	sum   PatchSum
	entry *stream.Entry // the current one, nil before the first
	sides [2]side
	into  *side  // the side that receives data
	bare  string // a new directory without entries so far
	total int64
}

// A side is the old or the new content of an entry.
type side struct {
	there bool // the content exists and is known
	left  stream.Left
	data  []byte
}

func (p *patcher) record(rec any) error {
	switch rec := rec.(type) {
	case *stream.Entry:
		if err := p.end(); err != nil {
			return err
		}
		p.filled(rec.Path)
		p.entry, p.sides, p.into = rec, [2]side{}, nil
	case stream.Content:
		p.into = &p.sides[0]
		if rec.New {
			p.into = &p.sides[1]
		}
		*p.into = side{there: rec.Left == stream.Here, left: rec.Left}
	case []byte:
		if p.total += int64(len(rec)); p.total > maxPatchTotal+maxPatchFile || len(p.into.data)+len(rec) > maxPatchFile {
			return errTooMany
		}
		p.into.data = append(p.into.data, rec...)
	default:
		return errOutOfPlace
	}
	return nil
}

// leave records that a path is not in the patch.
func (p *patcher) leave(path, reason string) {
	p.sum.LeftCount++
	if len(p.sum.Left) < maxLeft {
		p.sum.Left = append(p.sum.Left, LeftOut{path, reason})
	}
}

// filled reports p.bare as an empty directory unless next, the path of the next entry or "" at the end, lies in it.
func (p *patcher) filled(next string) {
	if p.bare != "" && !strings.HasPrefix(next, p.bare+"/") {
		p.leave(p.bare, "it is an empty directory")
	}
	p.bare = ""
}

// end writes the current entry.
func (p *patcher) end() error {
	e := p.entry
	switch {
	case e == nil:
		return nil
	case p.sides[0].left == stream.OfGit:
		p.sum.OfGit++
		return nil
	case isDirectory(e): // the patch contains its files
		if e.Kind == job.ChangeMode {
			p.leave(e.Path, "a patch cannot change the permissions of a directory")
		} else {
			p.bare = e.Path
			p.permissions()
		}
		return nil
	}
	if reason := p.unfit(); reason != "" {
		p.leave(e.Path, reason)
		return nil
	}
	p.sum.Files++
	p.permissions()
	if e.Type == job.TypeDirectory {
		p.bare = e.Path // it replaces a file
	}
	old, new := p.versions()
	if old.mode != "" && new.mode != "" && old.mode[:3] != new.mode[:3] {
		return errors.Join(p.file(old, version{}), p.file(version{}, new)) // the type changed
	}
	return p.file(old, new)
}

// usual are the permissions that programs give to what they create, with the usual umask.
const usual = 0o755

// permissions records permissions of the entry that the patch does not contain, although it contains the entry: they take
// effect when the changes are applied, and a reviewer must not overlook a file that everybody can write to.
func (p *patcher) permissions() {
	e := p.entry
	switch {
	case e.Kind == job.ChangeDeleted || e.Kind == job.ChangeMode || e.Type == job.TypeLink:
	case e.OldType != e.Type:
		if e.Mode&^usual != 0 {
			p.leave(e.Path, fmt.Sprintf("its content is, but not its permissions (%04o)", e.Mode))
		}
	default:
		differ := e.Mode ^ e.OldMode
		if gitMode(e.Type, e.Mode) != gitMode(e.OldType, e.OldMode) {
			differ &^= 0o111 // these are in the patch
		}
		if differ != 0 {
			p.leave(e.Path, fmt.Sprintf("its content is, but not its permissions (%04o, were %04o)", e.Mode, e.OldMode))
		}
	}
}

// isDirectory reports whether an entry is only about a directory, and replaces no file.
func isDirectory(e *stream.Entry) bool {
	return e.Type == job.TypeDirectory && (e.OldType == "" || e.OldType == job.TypeDirectory)
}

// unfit returns the reason why a patch cannot express the entry, "" if it can.
func (p *patcher) unfit() string {
	e := p.entry
	for _, s := range p.sides {
		if s.left != stream.Here {
			return reason(s.left)
		}
	}
	switch {
	case e.Type == job.TypeOther || e.OldType == job.TypeOther:
		return "it is a FIFO, a socket or a device"
	case e.Kind == job.ChangeMode && gitMode(e.Type, e.Mode) == gitMode(e.OldType, e.OldMode):
		return "a patch can change only the execute permission"
	case e.Kind != job.ChangeMode &&
		(needs(e.OldType) && !p.sides[0].there || needs(e.Type) && e.Kind != job.ChangeDeleted && !p.sides[1].there):
		return reason(stream.Unreadable)
	}
	return ""
}

// needs reports whether a file of this type has content.
func needs(t job.FileType) bool { return t == job.TypeFile || t == job.TypeLink }

func reason(l stream.Left) string {
	switch l {
	case stream.TooLarge:
		return "it is too large"
	case stream.TooMuch:
		return "the patch would be too large"
	}
	return "it cannot be read"
}
