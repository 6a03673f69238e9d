package changes

import (
	"bufio"
	"bytes"
	"context"
	"strconv"

	"corral/job"
	"corral/workspace/changes/stream"
)

// Bounds of a patch that is returned with a list, and kept in memory.
const (
	maxSmall      = 20       // changes
	maxSmallBytes = 64 << 10 // bytes of both sides of all files
)

// A Small is a small patch, with the text and sum that Patch would return.
type Small struct {
	Sum  PatchSum
	Text []byte
}

// ListPatch is List with DefaultList changes, and also returns their patch, from the same pass, if it is small: at
// most 20 changes with at most 64 KiB of contents. Otherwise the patch is nil, and the caller uses Patch. It is nil,
// too, if a non-empty directory was deleted, since a list does not name its contents.
func ListPatch(ctx context.Context, r job.Runner, l Layer) (*job.Changes, *Small, error) {
	v := &both{list: &job.Changes{Entries: []job.Change{}}, small: true}
	v.patcher.w = bufio.NewWriter(&v.text)
	args := append([]string{
		"list", "-time=" + listTime.String(), "-most=" + strconv.Itoa(DefaultList), "-contents=" + strconv.Itoa(maxSmallBytes),
	}, l.rest(nil)...)
	sum, err := l.run(ctx, r, job.ReadOnly, listTime, args, v.record)
	if err != nil {
		return nil, nil, err
	}
	v.list.More, v.list.Bytes, v.list.Incomplete = int(sum.More), sum.Bytes, sum.Incomplete
	if !v.small || sum.More > 0 || sum.Failed != "" {
		return v.list, nil, nil
	}
	p := &v.patcher
	if err := p.end(); err != nil {
		return nil, nil, err
	}
	p.filled("")
	p.sum.Incomplete = sum.Incomplete
	if err := p.w.Flush(); err != nil {
		return nil, nil, err
	}
	return v.list, &Small{p.sum, v.text.Bytes()}, nil
}

// both receives a list with contents, and writes the list and the patch.
type both struct {
	list    *job.Changes
	patcher patcher
	text    bytes.Buffer
	bytes   int
	small   bool // the patch is small so far
}

// maxBoth is the maximum number of content bytes in a list: files, and link targets in addition.
const maxBoth = maxSmallBytes + 4*DefaultList*stream.MaxPath

func (v *both) record(rec any) error {
	switch rec := rec.(type) {
	case *stream.Entry:
		return v.entry(rec)
	case stream.Content:
		v.small = v.small && rec.Left != stream.TooLarge && rec.Left != stream.TooMuch
	case []byte:
		if v.bytes += len(rec); v.bytes > maxBoth {
			return errTooMany
		}
	default:
		return errOutOfPlace
	}
	if !v.small {
		return nil
	}
	return v.patcher.record(rec)
}

func (v *both) entry(e *stream.Entry) error {
	if err := enlist(v.list, e, DefaultList); err != nil {
		return err
	}
	gone := e.OldType == job.TypeDirectory && (e.Type != job.TypeDirectory || e.Kind == job.ChangeDeleted)
	v.small = v.small && len(v.list.Entries) <= maxSmall && (!gone || e.Below == 0)
	if !v.small {
		return nil
	}
	if gone && e.Kind == job.ChangeDeleted { // an empty one, which git does not track
		err := v.patcher.end()
		v.patcher.filled(e.Path)
		v.patcher.entry = nil
		return err
	}
	return v.patcher.record(e)
}
