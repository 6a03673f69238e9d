package changes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" // git names contents by it
	"errors"
	"fmt"
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
	// Incomplete says that not everything was looked at.
	Incomplete bool
}

// Whole says whether the patch makes of the repository what jobs have seen.
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
// A patch cannot say everything: what it leaves out is in the sum. Paths of git directories are, which git refuses; files
// of more than 4 MiB, and what is beyond 64 MiB of all; empty directories, permissions other than that to execute, FIFOs and
// the like. A directory that is deleted goes with what was in it, as git has it.
func Patch(ctx context.Context, r job.Runner, l Layer, w io.Writer, paths []string) (*PatchSum, error) {
	p := &patcher{w: bufio.NewWriter(w)}
	args := append([]string{"diff", "-time=" + patchTime.String()}, l.rest(paths)...)
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
	p.sum.Incomplete = sum.Incomplete
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
	case isDirectory(e): // it comes with what is in it
		if e.Kind == job.ChangeMode {
			p.leave(e.Path, "its permissions, for it is a directory")
		} else if p.sides[0].left == stream.Here {
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
	case stream.OfGit:
		return "git takes no patch of its own files"
	}
	return "it cannot be read"
}

// A version is what a file is before or after; the zero value is that there is none.
type version struct {
	mode string // git's
	data []byte
}

func (p *patcher) versions() (old, new version) {
	e := p.entry
	if needs(e.OldType) {
		old = version{gitMode(e.OldType, e.OldMode), p.sides[0].data}
	}
	if needs(e.Type) && e.Kind != job.ChangeDeleted {
		new = version{gitMode(e.Type, e.Mode), p.sides[1].data}
	}
	return old, new
}

// gitMode is a type and permissions as git has them.
func gitMode(t job.FileType, mode uint32) string {
	switch {
	case t == job.TypeLink:
		return "120000"
	case mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// blob is git's name of a content: 40 zeros if there is none.
func (v version) blob() string {
	if v.mode == "" {
		return strings.Repeat("0", 2*sha1.Size)
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(v.data))
	h.Write(v.data)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// file writes one file's part, with git's extended header: gitdiff(1), "Generating patch text with -p".
func (p *patcher) file(old, new version) error {
	path := p.entry.Path
	fmt.Fprintf(p.w, "diff --git %s %s\n", quote("a/"+path), quote("b/"+path))
	switch {
	case old.mode == "":
		fmt.Fprintf(p.w, "new file mode %s\n", new.mode)
	case new.mode == "":
		fmt.Fprintf(p.w, "deleted file mode %s\n", old.mode)
	case old.mode != new.mode:
		fmt.Fprintf(p.w, "old mode %s\nnew mode %s\n", old.mode, new.mode)
	}
	if p.entry.Kind == job.ChangeMode {
		return nil
	}
	fmt.Fprintf(p.w, "index %s..%s", old.blob(), new.blob())
	if old.mode == new.mode {
		fmt.Fprintf(p.w, " %s", old.mode)
	}
	fmt.Fprintln(p.w)
	switch {
	case bytes.IndexByte(old.data, 0) >= 0 || bytes.IndexByte(new.data, 0) >= 0:
		return literal(p.w, new.data)
	case len(old.data)+len(new.data) == 0:
		return nil
	}
	fmt.Fprintf(p.w, "--- %s\n+++ %s\n", title("a/", path, old), title("b/", path, new))
	return hunks(p.w, old.data, new.data)
}

// title is a name before hunks.
func title(prefix, path string, v version) string {
	if v.mode == "" {
		return "/dev/null"
	}
	return quote(prefix + path)
}

// quote writes a name as git does: as it is, or in C's way if there is anything odd in it (quote_c_style in git's quote.c).
// A blank is odd here, which patch(1) stumbles over.
func quote(name string) string {
	odd := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' }
	plain := true
	for i := range len(name) {
		plain = plain && !odd(name[i])
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		letter := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c)
		switch {
		case letter >= 0:
			b.WriteByte('\\')
			b.WriteByte("abtnvfr\"\\"[letter])
		case odd(c) && c != ' ':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
