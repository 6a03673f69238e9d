package layer

import (
	"golang.org/x/sys/unix"

	"corral/isolate/scan"
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

// entry returns the stream entry for c.
func (w *walk) entry(c *change) *stream.Entry {
	e := &stream.Entry{Path: c.path, Kind: c.kind, Link: c.link, OldLink: c.old, Sensitive: c.sensitive}
	if c.l != nil {
		e.OldType, e.OldMode, e.OldSize = typeOf(c.l), c.l.Mode&permissions, sizeOf(c.l)
	}
	if c.u != nil {
		e.Type, e.Mode, e.Size = typeOf(c.u), c.u.Mode&permissions, sizeOf(c.u)
	} else {
		e.Type = e.OldType
	}
	if isDir(c.l) && !isDir(c.u) && !w.expand {
		w.subtree(c, func(_ *dir, _, _ string, st *unix.Stat_t, sensitive bool) {
			e.Below++
			e.OldSize += sizeOf(st)
			e.Sensitive = e.Sensitive || sensitive
		})
	}
	return e
}

func typeOf(st *unix.Stat_t) job.FileType {
	switch {
	case isFile(st):
		return job.TypeFile
	case isDir(st):
		return job.TypeDirectory
	case isLink(st):
		return job.TypeLink
	}
	return job.TypeOther
}

// sizeOf returns the size of a file or link, and 0 for others, whose size has no meaning.
func sizeOf(st *unix.Stat_t) int64 {
	if isFile(st) || isLink(st) {
		return max(st.Size, 0)
	}
	return 0
}

// subtree calls f for everything in the repository below c, directories before their contents. d is the parent
// directory.
func (w *walk) subtree(c *change, f func(d *dir, name, path string, st *unix.Stat_t, sensitive bool)) {
	w.below(c.at.lower, c.name, c.path, c.at.depth, c.rulesBelow(), f)
}

func (w *walk) below(in *dir, name, path string, depth int, rules scan.Rules, f func(*dir, string, string, *unix.Stat_t, bool)) {
	d, err := in.open(name)
	if err != nil || depth > w.bounds.Depth {
		d.close()
		w.incomplete = true
		return
	}
	defer d.close()
	names := w.names(d)
	bare := w.bareness(&pair{rules: rules}, names)
	for _, n := range names {
		if w.over() {
			return
		}
		st, err := d.lstat(n)
		if err != nil {
			w.incomplete = true
		}
		if st == nil || isTemp(n) {
			continue
		}
		sensitive, inside := rules.Entry(n, isDir(st), bare)
		f(d, n, path+"/"+n, st, sensitive)
		if isDir(st) {
			w.below(d, n, path+"/"+n, depth+1, inside, f)
		}
	}
}
