package edit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the way to a place. Each name is looked up from the repository on, so that a way costs its depth times its names.
const (
	maxLinks = 40   // symbolic links that are followed, as by the kernel
	maxWay   = 1000 // names, with those of the links; see also maxDepth
)

// temporary is the name of the new content while it is written. Only the holder of the directory's lock uses it, so what is
// found under it is left over from an edit that was killed. It is one of the names that the changes of a session leave
// out, see package layer.
const temporary = ".corral-apply-00000000000000ed.0"

// A place is where a file is, or is to be created: a directory that is open, and a name in it. A directory that is moved meanwhile does
// not lead elsewhere.
type place struct {
	root *os.Root // the repository
	dir  int      // for reading, so that it can be locked and synced
	file *os.File // has dir
	at   string   // path of the directory, relative to the repository
	name string
	made []string // directories that were made on the way, the outermost first
	// temporary is the name of the new content while it is written: the constant, unless somebody else holds the lock.
	temporary string
}

// shown returns the path of the place, relative to the repository.
func (p *place) shown() string { return path.Join(p.at, p.name) }

func (p *place) close() {
	_ = p.file.Close() // nil returns an error
	_ = p.root.Close()
}

// unmake removes the directories that were made, except those into which another program has put something.
func (p *place) unmake() {
	for _, d := range slices.Backward(p.made) {
		if in, err := p.directory(path.Dir(d)); err == nil {
			_ = unix.Unlinkat(int(in.Fd()), path.Base(d), unix.AT_REMOVEDIR)
			in.Close()
		}
	}
}

// find returns the place of a name in the repository at root. Symbolic links are followed within the repository; the last name is followed
// if isFile is set. A directory that is missing is made if mayMake, which gets its path, returns nil; without mayMake, none is made. With
// an error, none of them is left.
func find(root, name string, isFile bool, mayMake func(rel string) error) (*place, error) {
	rel, err := inside(root, name)
	if err != nil {
		return nil, err
	}
	if isFile && (strings.HasSuffix(rel, "/") || rel == ".") {
		return nil, fmt.Errorf("%s: %w", name, errDirectory)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the repository: %w", err)
	}
	p := &place{root: r, temporary: temporary}
	w := &walker{place: p, path: root, rest: split(rel), isFile: isFile, mayMake: mayMake}
	for p.name == "" && err == nil {
		err = w.step()
	}
	if err == nil {
		err = p.open()
	}
	if err != nil {
		p.unmake()
		p.close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// open opens the directory that the walk has come to.
func (p *place) open() (err error) {
	if p.file, err = p.directory(cmp.Or(p.at, ".")); err == nil {
		p.dir = int(p.file.Fd())
	}
	return err
}

// directory opens a directory that the walk has been to. It must not have become a link meanwhile, nor one above it, which could lead to a
// git directory.
func (p *place) directory(at string) (*os.File, error) {
	dir, err := p.root.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open its directory: %w", err)
	}
	top, err := p.root.Open(".")
	if err == nil {
		defer top.Close()
		err = isAt(dir, top, at)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// isAt returns an error unless an open directory is at a path relative to another one.
func isAt(dir, top *os.File, at string) error {
	real, err := whereIs(int(dir.Fd()))
	root, err2 := whereIs(int(top.Fd()))
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if real != path.Join(root, at) {
		return errors.New("another program moved its directory meanwhile")
	}
	return nil
}

var (
	errOutside   = errors.New("it leads out of the repository, and only files of the repository can be edited")
	errDirectory = errors.New("it is a directory, and only files can be edited")
)

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
	return slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
}

// A walker is on its way to a place.
type walker struct {
	*place
	path    string   // of the repository, absolute
	rest    []string // names that are still to be walked
	isFile  bool
	mayMake func(rel string) error
	links   int
	names   int
}

// step walks one name. It sets the name of the place when that is the last one.
func (w *walker) step() error {
	if len(w.rest) == 0 {
		return errDirectory
	}
	name := w.rest[0]
	w.rest = w.rest[1:]
	w.names++
	switch {
	case w.names > maxWay:
		return fmt.Errorf("it has more than %d names, with those of its links", maxWay)
	case name == ".." && w.at == "":
		return errOutside
	case name == "..":
		w.at = path.Join(w.at, "..")
		if w.at == "." {
			w.at = ""
		}
		return nil
	case strings.EqualFold(name, ".git"):
		return errors.New("it is in a git directory, which no edit changes: use git")
	case len(w.rest) == 0 && !w.isFile:
		w.name = name
		return nil
	}
	to := path.Join(w.at, name)
	if strings.Count(to, "/") > maxDepth {
		return fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	info, err := w.root.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(w.rest) > 0:
		return w.mkdir(to)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return w.follow(to)
	case err == nil && info.IsDir():
		w.at = to
	case len(w.rest) > 0:
		return fmt.Errorf("%s is not a directory", to)
	default:
		w.name = name
	}
	return nil
}

// A missingDirectory is the error for a directory on the way that does not exist.
type missingDirectory string

func (m missingDirectory) Error() string { return "there is no directory " + string(m) }

// Is reports it as the kernel does.
func (m missingDirectory) Is(err error) bool { return err == unix.ENOENT }

// mkdir makes a directory, and remembers that unless another program was faster.
func (w *walker) mkdir(to string) error {
	if w.mayMake == nil {
		return missingDirectory(to)
	}
	if err := w.mayMake(to); err != nil {
		return err
	}
	in, err := w.directory(path.Dir(to))
	if err != nil {
		return err
	}
	defer in.Close()
	switch err := unix.Mkdirat(int(in.Fd()), path.Base(to), 0o777); {
	case err == nil:
		w.made = append(w.made, to)
	case err != unix.EEXIST:
		return fmt.Errorf("create the directory %s: %w", path.Base(to), err)
	}
	w.at = to
	return nil
}

// follow goes on at the target of a symbolic link.
func (w *walker) follow(link string) error {
	if w.links++; w.links > maxLinks {
		return errors.New("it has too many symbolic links")
	}
	target, err := w.root.Readlink(link)
	if err != nil {
		return fmt.Errorf("read the link %s: %w", path.Base(link), err)
	}
	rel, err := inside(w.path, target)
	if err != nil {
		return fmt.Errorf("%s is a link to %w", link, err)
	}
	if path.IsAbs(target) {
		w.at = ""
	}
	w.rest = append(split(rel), w.rest...)
	return nil
}
