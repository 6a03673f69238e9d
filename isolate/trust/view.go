package trust

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"corral/rootfs"
)

// A view is those entries of a tree among which the places are, by path, with the directories above them.
type view map[string]*rootfs.Entry

// above are the directories that have all of a host's places, and what links at these lead to.
var above = []string{"/etc/ssl/", "/etc/pki/", "/etc/ca-certificates/"}

func viewOf(tree rootfs.Tree) view {
	v := view{}
	for n := range tree.Entries {
		e := &tree.Entries[n]
		if !slices.ContainsFunc(above, func(dir string) bool { return strings.HasPrefix(e.Path, dir) }) {
			continue
		}
		v[e.Path] = e
		for dir := path.Dir(e.Path); dir != "/"; dir = path.Dir(dir) {
			if _, ok := v[dir]; ok {
				break
			}
			v[dir] = &rootfs.Entry{Path: dir, Mode: fs.ModeDir | 0o755}
		}
	}
	return v
}

func (v view) file(p string) (string, bool) {
	at, found := v.resolve(p)
	return at, found && v[at].Mode.IsRegular()
}

func (v view) dir(p string) (string, bool) {
	at, found := v.resolve(p)
	return at, at != "" && (!found || v[at].Mode.IsDir())
}

func (v view) has(p string) bool {
	_, ok := v[p]
	return ok
}

// maxLinks is how many links the kernel follows in a path, path_resolution(7).
const maxLinks = 40

// resolve follows the links of the tree in p. If a component is missing, it returns where that is to be made, with the rest of
// p, and false; "" if p leads out of what the tree describes.
func (v view) resolve(p string) (at string, found bool) {
	at = "/"
	rest := strings.Split(p, "/")
	links := 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		next := path.Join(at, name) // also for "", . and ..
		e, ok := v[next]
		switch {
		case next == "/":
			at = next
		case !ok && links == 0:
			return path.Join(next, path.Join(rest...)), false
		case !ok:
			return "", false // perhaps a directory of the host that is bound
		case e.Mode.Type() == fs.ModeSymlink:
			if links++; links > maxLinks {
				return "", false
			}
			if path.IsAbs(e.Link) {
				at = "/"
			}
			rest = append(strings.Split(e.Link, "/"), rest...)
		default:
			at = next
		}
	}
	return at, true
}
