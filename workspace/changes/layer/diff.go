package layer

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/job"
	"corral/workspace/changes/stream"
)

// A differ is a lister that also writes contents.
type differ struct {
	lister
	file, total int64 // bytes left
}

func (v *differ) visit(c *change) (bool, error) {
	// A diff has already written each path below a deleted directory.
	if c.kind == "" || v.walk.expand && isDir(c.l) && c.u == nil {
		return true, nil
	}
	written, err := v.emit(v.walk.entry(c))
	if err != nil || !written {
		return true, err
	}
	if ofGit(c.path) {
		return true, v.w.Content(stream.Content{Left: stream.OfGit})
	}
	if err := v.side(c, c.at.lower, c.l, c.old, false); err != nil {
		return true, err
	}
	return true, v.side(c, c.at.upper, c.u, c.link, true)
}

// side writes the old or the new content of a change.
func (v *differ) side(c *change, d *dir, st *unix.Stat_t, link string, isNew bool) error {
	switch {
	case c.kind == job.ChangeMode:
		return nil
	case isLink(st):
		return errors.Join(v.w.Content(stream.Content{New: isNew}), v.w.Data([]byte(link)))
	case !isFile(st):
		return nil
	}
	content, left := v.read(c, d)
	if err := v.w.Content(stream.Content{New: isNew, Left: left}); err != nil {
		return err
	}
	return v.w.Data(content)
}

// read returns a file's content, or the reason to omit it.
func (v *differ) read(c *change, d *dir) ([]byte, stream.Left) {
	fd, st, err := d.file(c.name)
	if err != nil || c.barred != 0 {
		if err == nil {
			unix.Close(fd)
		}
		return nil, stream.Unreadable
	}
	defer unix.Close(fd)
	switch {
	case st.Size > v.file:
		return nil, stream.TooLarge
	case st.Size > v.total:
		return nil, stream.TooMuch
	}
	v.total -= st.Size
	content := make([]byte, st.Size)
	if !readAt(fd, content, 0) {
		return nil, stream.Unreadable // truncated concurrently
	}
	return content, stream.Here
}

// ofGit reports whether a path is in a directory that git treats as its own on any file system: git refuses patches
// of these.
func ofGit(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if scan.IsDotGit(part) {
			return true
		}
	}
	return false
}
