package changes

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"corral/changes/stream"
	"corral/job"
)

// Bounds of what one patch is made of: what corral-layer brings, and what is beyond that is malformed.
const (
	maxPatchFile  = 4 << 20  // bytes of one side of a file
	maxPatchTotal = 64 << 20 // bytes of all
)

// A PatchSum says what is in a patch.
type PatchSum struct {
	Files int64 // paths in it
	// Left are paths that differ and are not in the patch, as far as they are kept, with the reason. Left counts all of them.
	Left      []LeftOut
	LeftCount int64
	// OfGit counts paths of git directories, which git takes no patch of. They are not among Left.
	OfGit int64
	// Incomplete says that not everything was looked at.
	Incomplete bool
	// Digest is that of all changes, those left out of the patch too; zero unless Layer.Digest asked for it.
	Digest stream.Digest
}

// Whole says whether the patch makes of the repository what jobs have seen, git directories apart.
func (s *PatchSum) Whole() bool { return s.LeftCount == 0 && !s.Incomplete }

// A LeftOut is a path that is not in a patch.
type LeftOut struct {
	Path, Reason string
}

// maxLeft bounds PatchSum.Left.
const maxLeft = 100

// Patch writes the changes of a layer at and below paths (none: all) as one patch that git apply takes, and patch -p1 as far
// as it knows git's headers. Binary files are in it as git has them.
//
// A patch cannot say everything: what it leaves out is in the sum. That is paths of git directories, which git refuses;
// files of more than 4 MiB, and what is beyond 64 MiB of all; empty directories, permissions other than that to execute,
// FIFOs and the like. A directory that is deleted goes with what was in it, as git has it.
func Patch(ctx context.Context, r job.Runner, l Layer, w io.Writer, paths []string) (*PatchSum, error) {
	p := &patcher{w: bufio.NewWriter(w)}
	args := append(append([]string{"diff", "-time=" + patchTime.String()}, l.options()...), l.rest(paths)...)
	sum, err := l.run(ctx, r, job.ReadOnly, patchTime, args, p.record)
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

// A patcher writes a patch, one path after the other.
type patcher struct {
	w     *bufio.Writer
	sum   PatchSum
	entry *stream.Entry // at hand, nil before the first
	sides [2]side
	into  *side  // that data are for
	bare  string // a new directory with nothing in it so far
	total int64
}

// A side is one of an entry's contents.
type side struct {
	there bool // there is one, and it is known
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

// leave notes that a path is not in the patch.
func (p *patcher) leave(path, reason string) {
	p.sum.LeftCount++
	if len(p.sum.Left) < maxLeft {
		p.sum.Left = append(p.sum.Left, LeftOut{path, reason})
	}
}

// filled is told the path that comes next, "" at the end: it shows whether a new directory has anything in it.
func (p *patcher) filled(next string) {
	if p.bare != "" && !strings.HasPrefix(next, p.bare+"/") {
		p.leave(p.bare, "it is an empty directory")
	}
	p.bare = ""
}

// end writes the entry at hand.
func (p *patcher) end() error {
	e := p.entry
	switch {
	case e == nil:
		return nil
	case p.sides[0].left == stream.OfGit:
		p.sum.OfGit++
		return nil
	case isDirectory(e): // it comes with what is in it
		if e.Kind == job.ChangeMode {
			p.leave(e.Path, "its permissions, for it is a directory")
		} else {
			p.bare = e.Path
		}
		return nil
	}
	if reason := p.unfit(); reason != "" {
		p.leave(e.Path, reason)
		return nil
	}
	p.sum.Files++
	if e.Type == job.TypeDirectory {
		p.bare = e.Path // in the place of something else
	}
	old, new := p.versions()
	if old.mode != "" && new.mode != "" && old.mode[:3] != new.mode[:3] {
		return errors.Join(p.file(old, version{}), p.file(version{}, new)) // of another type
	}
	return p.file(old, new)
}

// isDirectory says whether an entry is about a directory alone.
func isDirectory(e *stream.Entry) bool {
	return e.Type == job.TypeDirectory && (e.OldType == "" || e.OldType == job.TypeDirectory)
}

// unfit is why no patch has this entry, "" if one can.
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
		return "its permissions, but for that to execute"
	case e.Kind != job.ChangeMode && (needs(e.OldType) && !p.sides[0].there || needs(e.Type) && e.Kind != job.ChangeDeleted && !p.sides[1].there):
		return reason(stream.Unreadable)
	}
	return ""
}

// needs says whether something of this type has a content.
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
