package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Write creates the entries below the directory dirfd, an empty tmpfs. It checks all entries before it creates the
// first. Links and files must not exist; a directory may exist, but a link in its place is an error and not followed.
// Parents without an entry get mode 0755. Modes do not depend on the umask. The files belong to the caller's user.
// The caller closes dirfd.
func (t Tree) Write(dirfd int) error { return t.write(writer{root: dirfd}) }

// Overwrite is Write for a directory that may have links and files at the paths of entries, which it replaces. Nobody else may
// change the directory meanwhile.
func (t Tree) Overwrite(dirfd int) error { return t.write(writer{root: dirfd, replace: true}) }

// Update makes the entries below dirfd, which are those of old, the ones of t. Files and links are replaced at once: programs
// may read them meanwhile. Nobody else may change the directory.
func (t Tree) Update(dirfd int, old Tree) error {
	was, now := old.byPath(), t.byPath()
	w := writer{root: dirfd, replace: true}
	defer w.leave(0)
	for _, e := range slices.Backward(old.Entries) { // files before their directories
		if n, ok := now[e.Path]; ok && n.Mode.IsDir() == e.Mode.IsDir() {
			continue
		}
		if err := w.remove(e); err != nil {
			return fmt.Errorf("remove %s: %w", e.Path, err)
		}
	}
	var differ Tree
	for _, e := range t.Entries {
		if o, ok := was[e.Path]; !ok || !same(o, e) {
			differ.Entries = append(differ.Entries, e)
		}
	}
	return differ.Overwrite(dirfd)
}

func (t Tree) byPath() map[string]Entry {
	m := make(map[string]Entry, len(t.Entries))
	for _, e := range t.Entries {
		m[e.Path] = e
	}
	return m
}

// With returns the entries of t, and those of over in their place, as far as they are below a directory.
func (t Tree) With(over Tree, dir string) Tree {
	var all Tree
	replaced := over.byPath()
	for _, e := range t.Entries {
		if _, ok := replaced[e.Path]; !ok && below(e.Path, dir) {
			all.Entries = append(all.Entries, e)
		}
	}
	for _, e := range over.Entries {
		if below(e.Path, dir) {
			all.Entries = append(all.Entries, e)
		}
	}
	return all
}

func (t Tree) write(w writer) error {
	for _, e := range t.Entries {
		if err := e.check(); err != nil {
			return err
		}
	}
	defer w.leave(0)
	for _, e := range t.Entries {
		if err := w.make(e); err != nil {
			return fmt.Errorf("make %s: %w", e.Path, err)
		}
	}
	return nil
}

// Own makes id the user and group of what Write created below dirfd, and of the directories above each entry.
func (t Tree) Own(dirfd, id int) error {
	if err := unix.Fchown(dirfd, id, id); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	done := map[string]bool{"/": true}
	for _, e := range t.Entries {
		for p := e.Path; !done[p]; p = path.Dir(p) {
			done[p] = true
			if err := unix.Fchownat(dirfd, p[1:], id, id, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return fmt.Errorf("chown %s: %w", p, err)
			}
		}
	}
	return nil
}

// check returns an error for an entry that cannot be created as described.
func (e Entry) check() error {
	if why := badPath(e.Path); why != "" {
		return fmt.Errorf("%w: path %q: %s", ErrEntry, e.Path, why)
	}
	const special = fs.ModeSetuid | fs.ModeSetgid
	kind := e.Mode.Type()
	switch {
	case e.Path == "/":
		return fmt.Errorf("%w: path \"/\" is the root itself", ErrEntry)
	case kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink:
		return fmt.Errorf("%w: %s must be a directory, link or regular file, got %v", ErrEntry, e.Path, e.Mode)
	case e.Mode&special != 0:
		return fmt.Errorf("%w: %s has a set-id bit: %v", ErrEntry, e.Path, e.Mode)
	case (kind == fs.ModeSymlink) != (e.Link != ""):
		return fmt.Errorf("%w: %s: a link must have a target, other entries must not", ErrEntry, e.Path)
	case kind != 0 && e.Data != nil:
		return fmt.Errorf("%w: %s has content, but is not a regular file", ErrEntry, e.Path)
	}
	return nil
}

// writer walks the tree being written. It keeps the directories from the root down to the last entry's open, since
// consecutive entries mostly share them.
type writer struct {
	root    int
	replace bool // links and files that exist
	stack   []openDir
}

// openDir is a directory below the root that the writer keeps open.
type openDir struct {
	name string
	fd   int
}

// make creates one entry.
func (w *writer) make(e Entry) error {
	names := strings.Split(e.Path[1:], "/")
	last := len(names) - 1
	if e.Mode.IsDir() {
		if err := w.enter(names); err != nil {
			return err
		}
		return unix.Fchmod(w.top(), permBits(e.Mode))
	}
	if err := w.enter(names[:last]); err != nil {
		return err
	}
	if !w.replace {
		return create(w.top(), names[last], e)
	}
	err := create(w.top(), aside, e)
	if err == nil {
		err = unix.Renameat(w.top(), aside, w.top(), names[last])
	}
	if err != nil {
		_ = unix.Unlinkat(w.top(), aside, 0)
	}
	return err
}

// aside is the name of a file that is about to replace another one.
const aside = ".corral-new"

// create creates a link or a file.
func create(dir int, name string, e Entry) error {
	if e.Mode.Type() == fs.ModeSymlink {
		return unix.Symlinkat(e.Link, dir, name)
	}
	return writeFile(dir, name, permBits(e.Mode), e.Data)
}

// remove removes an entry, if it exists.
func (w *writer) remove(e Entry) error {
	names := strings.Split(e.Path[1:], "/")
	last, flags := len(names)-1, 0
	if err := w.enter(names[:last]); err != nil {
		return err
	}
	if e.Mode.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(w.top(), names[last], flags); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// enter opens the directory with these names as the top of the stack, and creates missing ones.
func (w *writer) enter(names []string) error {
	same := 0
	for same < len(names) && same < len(w.stack) && w.stack[same].name == names[same] {
		same++
	}
	w.leave(same)
	for _, name := range names[same:] {
		fd, err := descend(w.top(), name)
		if err != nil {
			return err
		}
		w.stack = append(w.stack, openDir{name, fd})
	}
	return nil
}

// leave closes all but the first n directories of the stack.
func (w *writer) leave(n int) {
	for _, d := range w.stack[n:] {
		_ = unix.Close(d.fd) // a directory has no unwritten data
	}
	w.stack = w.stack[:n]
}

// top returns the descriptor of the current directory.
func (w *writer) top() int {
	if len(w.stack) == 0 {
		return w.root
	}
	return w.stack[len(w.stack)-1].fd
}

// descend opens the directory name of dir, a single component, and creates it with mode 0755 if it is missing. It
// returns ENOTDIR for a link.
func descend(dir int, name string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = openat(dir, name, flags, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, err
	}
	if fd, err = openat(dir, name, flags, 0); err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, 0o755); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// writeFile creates the regular file name in dir. It fails if the file exists.
func writeFile(dir int, name string, perm uint32, data []byte) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := openat(dir, name, flags, 0o600)
	if err != nil {
		return err
	}
	err = writeAll(fd, data)
	if err == nil {
		err = unix.Fchmod(fd, perm)
	}
	return errors.Join(err, unix.Close(fd))
}

// writeAll writes all of data to fd, in several calls if needed.
func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			data = data[n:]
		}
	}
	return nil
}

// permBits returns the mode bits for the kernel: the sticky bit of fs.FileMode differs.
func permBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}
