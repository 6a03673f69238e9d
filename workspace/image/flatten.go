package image

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"slices"
)

// flatten writes the root file system that results from layers, the lowest first. It reads them twice: first to
// verify every digest and determine the remaining files of each, then to write these.
func flatten(out io.Writer, layers []*layer, layered bool, limits Limits) (Summary, error) {
	t := newTree(layered, limits)
	m := newMeter(limits)
	for n, l := range layers {
		err := l.each(m, func(seq int, h *tar.Header, _ io.Reader) error { return t.apply(n, seq, h) })
		if err != nil {
			return Summary{}, err
		}
	}
	f := &flattener{w: newWriter(out, limits), wanted: make([]map[int]*object, len(layers))}
	f.w.sum.Devices = t.left
	if err := f.names(t.root, ""); err != nil {
		return f.w.sum, err
	}
	m = newMeter(limits)
	for n, l := range layers {
		if err := f.contents(m, l, f.wanted[n]); err != nil {
			return f.w.sum, err
		}
	}
	for _, link := range f.links {
		if err := f.w.link(link.name, link.object.path); err != nil {
			return f.w.sum, err
		}
	}
	return f.w.end()
}

// A flattener writes a tree: directories and symbolic links first, then files in the order of their layers, then
// additional names of files.
type flattener struct {
	w      *writer
	wanted []map[int]*object // by layer and index of the entry: the files to write
	links  []further
	text   int
	bytes  int64 // of all files to write
}

// further is an additional name of a file.
type further struct {
	name   string
	object *object
}

func (f *flattener) names(dir *node, prefix string) error {
	for _, base := range slices.Sorted(maps.Keys(dir.children)) {
		n, name := dir.children[base], prefix+base
		var err error
		switch n.kind {
		case tar.TypeDir:
			if err = f.w.directory(name, n.mode, n.mtime); err == nil {
				err = f.names(n, name+"/")
			}
		case tar.TypeSymlink:
			err = f.w.symlink(name, n.target)
		default:
			err = f.file(name, n.object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *flattener) file(name string, o *object) error {
	if f.text += len(name); f.text > maxText {
		return errText
	}
	if o.path != "" {
		f.links = append(f.links, further{name, o})
		return nil
	}
	o.path = name
	if f.wanted[o.from] == nil {
		f.wanted[o.from] = map[int]*object{}
	}
	f.wanted[o.from][o.seq] = o
	if o.size > f.w.limits.Bytes-f.bytes {
		return tooLarge(f.w.limits.Bytes)
	}
	f.bytes += o.size
	return nil
}

// contents writes the wanted files of one layer.
func (f *flattener) contents(m *meter, l *layer, wanted map[int]*object) error {
	if len(wanted) == 0 {
		return nil
	}
	left := len(wanted)
	err := l.each(m, func(seq int, h *tar.Header, content io.Reader) error {
		o := wanted[seq]
		if o == nil {
			return nil
		}
		if h.Size != o.size {
			return changed(h.Name)
		}
		left--
		return f.w.file(o.path, o.mode, o.mtime, o.size, content)
	})
	if err == nil && left > 0 {
		err = fmt.Errorf("%s changed while it was read", l.name)
	}
	return err
}
