package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"strings"

	"corral/workspace/image/unpack"
)

// Names of whiteouts, see layer.md of the OCI image specification.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	reserved = ".wh..wh."
)

// A tree is the root file system that results from the layers applied so far.
type tree struct {
	root     *node
	layered  bool            // interpret names of whiteouts
	maxNodes int64           // maximum of nodes
	nodes    int64           // current number
	text     int             // bytes of all names and targets, including removed ones
	devices  map[string]bool // names of omitted devices, pipes and sockets; links to them are omitted too
	left     int64           // number of omitted entries
}

// A node is a name. Hard links share an object.
type node struct {
	*object
	children map[string]*node // of a directory
	layer    int              // the layer that defined it
	hidden   int              // 1 + the layer whose whiteout was already applied to this subtree
	emptied  int              // 1 + the layer whose opaque whiteout was already applied to the children
}

// An object is a file, directory or symbolic link. The content of a file is entry seq of layer from.
type object struct {
	kind      byte // tar.TypeDir, tar.TypeReg, tar.TypeSymlink
	mode      uint32
	mtime     int64
	size      int64
	target    string
	from, seq int
	path      string // the first name under which it is written
}

func newTree(layered bool, limits Limits) *tree {
	return &tree{
		root:    &node{object: &object{kind: tar.TypeDir}, children: map[string]*node{}},
		layered: layered, maxNodes: 2 * limits.Entries, devices: map[string]bool{},
	}
}

// clean returns the name of an entry relative to the root of the image, "" for the root itself.
func clean(name string) (string, error) {
	parts := strings.Split(name, "/")
	kept := parts[:0]
	for _, part := range parts {
		if part == ".." {
			return "", errors.New("the name contains \"..\"")
		}
		if part != "" && part != "." {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return "", nil
	}
	name = strings.Join(kept, "/")
	_, _, err := unpack.Split(name)
	return name, err
}

// apply applies entry seq of a layer to the tree.
func (t *tree) apply(layer, seq int, h *tar.Header) error {
	name, err := clean(h.Name)
	if err != nil || name == "" {
		return err
	}
	dir, base := "", name
	if cut := strings.LastIndexByte(name, '/'); cut >= 0 {
		dir, base = name[:cut], name[cut+1:]
	}
	if t.layered && strings.HasPrefix(base, whiteout) {
		return t.remove(layer, dir, base)
	}
	o := &object{mode: uint32(h.Mode & 0o7777), mtime: h.ModTime.Unix(), from: layer, seq: seq}
	switch h.Typeflag {
	case tar.TypeDir:
		o.kind = tar.TypeDir
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		o.kind, o.size = tar.TypeReg, h.Size
	case tar.TypeSymlink:
		o.kind, o.target = tar.TypeSymlink, h.Linkname
		err = unpack.CheckTarget(o.target)
	case tar.TypeLink:
		o, err = t.linked(h.Linkname)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		o = nil
	default:
		err = fmt.Errorf("unknown entry type %q", h.Typeflag)
	}
	if err != nil {
		return err
	}
	parent, err := t.parent(layer, dir)
	if err != nil {
		return err
	}
	if o == nil {
		return t.leaveOut(parent, name, base)
	}
	return t.set(parent, base, o, layer)
}

// leaveOut counts a device, pipe or socket and removes the entry that it would have replaced.
func (t *tree) leaveOut(parent *node, name, base string) error {
	if t.text += len(name); t.text > maxText {
		return errText
	}
	if old := parent.children[base]; old != nil {
		t.nodes -= old.count()
		delete(parent.children, base)
	}
	t.devices[name] = true
	t.left++
	return nil
}

// linked returns the object that a hard link to target refers to, nil if it was omitted. The lookup does not follow
// symbolic links.
func (t *tree) linked(target string) (*object, error) {
	name, err := clean(target)
	if err != nil {
		return nil, fmt.Errorf("a hard link to %.200q: %w", target, err)
	}
	n := t.root
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			break
		}
	}
	switch {
	case n == nil && t.devices[name]:
		return nil, nil
	case n == nil:
		return nil, fmt.Errorf("a hard link to %.200q, which is not an earlier entry", target)
	case n.kind == tar.TypeDir:
		return nil, fmt.Errorf("a hard link to %.200q, which is a directory", target)
	}
	return n.object, nil
}

// parent returns the directory dir. It creates components that have no entry.
func (t *tree) parent(layer int, dir string) (*node, error) {
	n := t.root
	if dir == "" {
		return n, nil
	}
	for part := range strings.SplitSeq(dir, "/") {
		child := n.children[part]
		if child == nil {
			implied := &object{kind: tar.TypeDir, mode: 0o755, from: layer}
			if err := t.set(n, part, implied, layer); err != nil {
				return nil, err
			}
			child = n.children[part]
		}
		if child.kind == tar.TypeSymlink {
			return nil, fmt.Errorf("its directory %.200q is a symbolic link", dir)
		}
		if child.kind != tar.TypeDir {
			return nil, fmt.Errorf("its directory %.200q is a file", dir)
		}
		n = child
	}
	return n, nil
}

// set makes base in parent a name of o. A directory that replaces a directory keeps its contents.
func (t *tree) set(parent *node, base string, o *object, layer int) error {
	if old := parent.children[base]; old != nil {
		if old.kind == tar.TypeDir && o.kind == tar.TypeDir {
			old.object, old.layer = o, layer
			return nil
		}
		t.nodes -= old.count()
	}
	n := &node{object: o, layer: layer}
	if o.kind == tar.TypeDir {
		n.children = map[string]*node{}
	}
	if t.nodes++; t.nodes > t.maxNodes {
		return tooMany(t.maxNodes / 2)
	}
	if t.text += len(base) + len(o.target); t.text > maxText {
		return errText
	}
	parent.children[base] = n
	return nil
}

// count returns the number of nodes in the subtree of n.
func (n *node) count() int64 {
	sum := int64(1)
	for _, child := range n.children {
		sum += child.count()
	}
	return sum
}

// remove applies a whiteout: it hides entries of lower layers, and none of its own layer, wherever in the layer it
// occurs.
func (t *tree) remove(layer int, dir, base string) error {
	n := t.root
	if dir != "" {
		for part := range strings.SplitSeq(dir, "/") {
			if n = n.children[part]; n == nil {
				return nil
			}
		}
	}
	if base == opaque {
		if n.emptied == layer+1 {
			return nil
		}
		n.emptied = layer + 1
		for name, child := range n.children {
			t.hide(n, name, child, layer)
		}
		return nil
	}
	if strings.HasPrefix(base, reserved) {
		return nil // internal to union file systems
	}
	name := strings.TrimPrefix(base, whiteout)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("a whiteout of the invalid name %q", name)
	}
	if child := n.children[name]; child != nil {
		t.hide(n, name, child, layer)
	}
	return nil
}

// hide removes those nodes of the subtree of n that are not of layer, and reports whether n is removed. It visits a
// remaining node only once per layer, since all nodes added later are of this layer.
func (t *tree) hide(parent *node, name string, n *node, layer int) bool {
	if n.hidden == layer+1 {
		return false
	}
	n.hidden = layer + 1
	gone := n.layer != layer
	for base, child := range n.children {
		gone = t.hide(n, base, child, layer) && gone
	}
	if gone {
		t.nodes--
		delete(parent.children, name)
	}
	return gone
}
