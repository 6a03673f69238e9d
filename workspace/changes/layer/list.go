package layer

import (
	"corral/job"
	"corral/workspace/changes/stream"
)

// A lister writes an entry for each difference.
type lister struct {
	w                   *stream.Writer
	walk                *walk
	left, leftSensitive int
	total               stream.Sum
}

func (v *lister) sum() *stream.Sum       { return &v.total }
func (v *lister) writer() *stream.Writer { return v.w }
func (v *lister) enter(*pair) error      { return nil }
func (v *lister) leave(*pair) error      { return nil }
func (v *lister) closed(*change) error   { return nil }
func (v *lister) wants(*change) bool     { return true }

func (v *lister) visit(c *change) (bool, error) {
	if c.kind == "" {
		return true, nil
	}
	_, err := v.emit(v.walk.entry(c))
	return true, err
}

// emit counts an entry, and writes it unless the bound is reached. Sensitive entries have a second bound, so that
// many others do not displace them.
func (v *lister) emit(e *stream.Entry) (written bool, err error) {
	v.total.Entries++
	if e.Kind == job.ChangeDeleted {
		v.total.Bytes += e.OldSize
	} else {
		v.total.Bytes += e.Size
	}
	left := &v.left
	if v.left <= 0 && e.Sensitive {
		left = &v.leftSensitive
	}
	if *left <= 0 {
		v.total.More++
		return false, nil
	}
	*left--
	return true, v.w.Entry(e)
}
