package layer

import (
	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/job"
	"corral/workspace/changes/stream"
)

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
	if e.Kind == job.ChangeMode && isDir(c.l) && !e.Sensitive { // others may replace what is below
		incomplete, short, missed := w.incomplete, w.short, w.missed
		w.subtree(c, func(_ *dir, _, _ string, _ *unix.Stat_t, sensitive bool) { e.Sensitive = e.Sensitive || sensitive })
		w.incomplete, w.short, w.missed = incomplete || w.late, short || w.late, missed
	}
	return e
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
		w.miss(path, err == nil)
		return
	}
	defer d.close()
	names := w.names(d, path)
	bare := w.bareness(&pair{rules: rules}, names)
	for _, n := range names {
		if w.over() {
			return
		}
		st, err := d.lstat(n)
		if err != nil {
			w.miss(path+"/"+n, false)
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
