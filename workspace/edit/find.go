package edit

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the way to a file.
const (
	maxLinks = 40  // symbolic links, as in the kernel
	maxDepth = 200 // open directories
)

// temporary is the name of the new content while it is written. Only the holder of the directory's lock uses it, so what is
// found under it is left over from an edit that was killed. It is one of the names that the changes of a session leave
// out, see package layer.
const temporary = ".corral-apply-00000000000000ed.0"

// A place is where a file is, or is to be created: a directory that is open, and a name in it. The way to it was walked
// one name at a time, on open directories, so a directory that is moved meanwhile does not lead elsewhere.
type place struct {
	dir   int // for reading, so that it can be locked and synced
	names []string
	name  string
	made  madeDirs
	// temporary is the name of the new content while it is written: the constant, unless somebody else holds the lock.
	temporary string
}

// madeDirs are the directories that the walk has made, the outermost first.
type madeDirs []madeDir

// A madeDir is a directory that was made: a name in an open directory.
type madeDir struct {
	in   int
	name string
}

// remove removes the directories, except those into which another program has put something.
func (m madeDirs) remove() {
	for _, d := range slices.Backward(m) {
		_ = unix.Unlinkat(d.in, d.name, unix.AT_REMOVEDIR)
	}
}

func (m madeDirs) close() {
	for _, d := range m {
		_ = unix.Close(d.in)
	}
}

// shown returns the path of the place, relative to the repository.
func (p *place) shown() string { return path.Join(path.Join(p.names...), p.name) }

func (p *place) close() {
	_ = unix.Close(p.dir)
	p.made.close()
}

// A walker is on its way to a file.
type walker struct {
	root    string // absolute path of the repository
	creates bool   // makes directories that are missing
	dirs    []int  // open directories from the repository to where it is
	names   []string
	rest    []string // names that are still to be walked
	links   int
	made    madeDirs
}

// find returns the place of a file in the repository at root. Symbolic links are followed within the repository. With
// creates, directories that are missing are created; with an error, none of them is left.
func find(root, name string, creates bool) (p *place, err error) {
	rel, err := inside(root, name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(rel, "/") || rel == "." {
		return nil, fmt.Errorf("%s is a directory, and only files can be edited", name)
	}
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	w := &walker{root: root, creates: creates, dirs: []int{top}, rest: split(rel)}
	defer w.close()
	defer func() {
		if err != nil {
			w.made.remove()
			w.made.close()
		}
	}()
	for {
		last, done, err := w.step()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		case !done:
			continue
		}
		dir, err := unix.Openat(w.top(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: open its directory: %w", name, err)
		}
		return &place{temporary: temporary, dir: dir, names: w.names, name: last, made: w.made}, nil
	}
}

// errOutside is the error for a path that leaves the repository.
var errOutside = errors.New("it leads out of the repository, and only files of the repository can be edited")

// inside returns name relative to the repository at root.
func inside(root, name string) (string, error) {
	if !path.IsAbs(name) {
		return name, nil
	}
	if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/"); ok {
		return rest, nil
	}
	return "", fmt.Errorf("%s: %w", name, errOutside)
}

func split(name string) []string {
	var list []string
	for part := range strings.SplitSeq(name, "/") {
		if part != "" && part != "." {
			list = append(list, part)
		}
	}
	return list
}

func (w *walker) top() int { return w.dirs[len(w.dirs)-1] }

func (w *walker) close() {
	for _, fd := range w.dirs {
		_ = unix.Close(fd)
	}
}

// step walks one name. It reports done, with the last name, when that is a file, or does not exist and is to be created.
func (w *walker) step() (last string, done bool, err error) {
	if len(w.rest) == 0 {
		return "", false, errors.New("it is a directory, and only files can be edited")
	}
	name := w.rest[0]
	w.rest = w.rest[1:]
	switch {
	case name == "..":
		return "", false, w.up()
	case strings.EqualFold(name, ".git"):
		return "", false, errors.New("it is in a git directory, which no edit changes: use git")
	}
	var st unix.Stat_t
	err = unix.Fstatat(w.top(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT && len(w.rest) == 0:
		return name, true, nil
	case err == unix.ENOENT && w.creates:
		if err := w.mkdir(name); err != nil {
			return "", false, fmt.Errorf("create the directory %s: %w", name, err)
		}
		return "", false, w.into(name)
	case err == unix.ENOENT:
		return "", false, missingDirectory(path.Join(append(w.names, name)...))
	case err != nil:
		return "", false, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "", false, w.follow(name)
	case unix.S_IFDIR:
		return "", false, w.into(name)
	}
	if len(w.rest) > 0 {
		return "", false, fmt.Errorf("%s is not a directory", path.Join(append(w.names, name)...))
	}
	return name, true, nil
}

// A missingDirectory is the error for a directory on the way that does not exist.
type missingDirectory string

func (m missingDirectory) Error() string { return "there is no directory " + string(m) }

// Is reports it as the kernel does.
func (m missingDirectory) Is(err error) bool { return err == unix.ENOENT }

// mkdir makes a directory, and remembers that unless another program was faster.
func (w *walker) mkdir(name string) error {
	in, err := unix.FcntlInt(uintptr(w.top()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(w.top(), name, 0o777); err != nil {
		_ = unix.Close(in)
		if err == unix.EEXIST {
			return nil
		}
		return err
	}
	w.made = append(w.made, madeDir{in, name})
	return nil
}

// up goes to the directory that the walk came from.
func (w *walker) up() error {
	if len(w.dirs) == 1 {
		return errOutside
	}
	_ = unix.Close(w.top())
	w.dirs, w.names = w.dirs[:len(w.dirs)-1], w.names[:len(w.names)-1]
	return nil
}

func (w *walker) into(name string) error {
	if len(w.dirs) >= maxDepth {
		return fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	fd, err := unix.Openat(w.top(), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the directory %s: %w", path.Join(append(w.names, name)...), err)
	}
	w.dirs, w.names = append(w.dirs, fd), append(w.names, name)
	return nil
}

// follow goes on at the target of a symbolic link.
func (w *walker) follow(name string) error {
	if w.links++; w.links > maxLinks {
		return errors.New("it has too many symbolic links")
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(w.top(), name, target)
	if err != nil {
		return fmt.Errorf("read the link %s: %w", name, err)
	}
	rel, err := inside(w.root, string(target[:n]))
	if err != nil {
		return fmt.Errorf("%s is a link to %w", path.Join(append(w.names, name)...), err)
	}
	if path.IsAbs(string(target[:n])) {
		for len(w.dirs) > 1 {
			if err := w.up(); err != nil {
				return err
			}
		}
	}
	w.rest = append(split(rel), w.rest...)
	return nil
}
