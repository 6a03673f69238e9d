package edit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// errProtected is the error for a path that the client's sandbox makes read-only.
var errProtected = errors.New("the client's sandbox allows no changes there")

// permit refuses to change a path relative to the repository. whole says that what is below it is changed, too.
func (f *files) permit(rel string, whole bool) error {
	deepest := func(list []string) int {
		most := -1
		for _, p := range list {
			if below([]string{p}, rel, false) {
				most = max(most, len(p))
			}
		}
		return most
	}
	has := slices.ContainsFunc(f.ReadOnly, func(p string) bool { return strings.HasPrefix(p, rel+"/") })
	has = has || len(f.patterns) > 0 // perhaps
	hidden := below(f.Hidden, rel, whole)
	for at := rel; at != "."; at = path.Dir(at) {
		hidden = hidden || f.matches(path.Join(f.root, at))
	}
	if deepest(f.ReadOnly) > deepest(f.Open) || whole && has || hidden {
		return fmt.Errorf("%s: %w", rel, errProtected)
	}
	return nil
}

// parent walks to the directory of a path, whose last name need not exist and is not followed.
func (f *files) parent(name string, creates bool) (*walker, string, error) {
	if path.Clean(name) == f.root {
		return nil, "", state("%s is the repository itself", name)
	}
	rel, err := inside(f.root, name)
	if err != nil {
		return nil, "", err
	}
	rest := split(rel)
	last := ".."
	if len(rest) > 0 {
		last = rest[len(rest)-1]
	}
	if last == ".." || strings.EqualFold(last, ".git") {
		return nil, "", fmt.Errorf("%s: it is in a git directory, or names no entry of its directory", name)
	}
	top, err := unix.Open(f.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	w := &walker{root: f.root, creates: creates, dirs: []int{top}, rest: rest}
	for len(w.rest) > 1 {
		_, done, err := w.step()
		if err != nil || done {
			w.close()
			w.made.close()
			if err == nil {
				err = unix.ENOTDIR
			}
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		if rel := path.Join(w.names...); below(f.Open, rel, true) && !below(f.Open, rel, false) && !below(f.Hidden, rel, false) {
			continue // it leads to a directory that is open
		}
		if err := f.permit(path.Join(w.names...), false); err != nil {
			w.close()
			w.made.remove()
			w.made.close()
			return nil, "", err
		}
	}
	w.made.close()
	return w, last, nil
}

// create opens an empty file to be written, in the place where links in the repository lead.
func (f *files) create(name string) (*os.File, error) {
	at, err := find(f.root, name, false)
	if err != nil {
		return nil, err
	}
	defer at.close()
	if err := f.permit(at.shown(), false); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(at.dir, at.name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	if _, err = regular(file); err == nil {
		err = file.Truncate(0)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (f *files) write() error {
	file, err := f.create(f.Path)
	if err != nil {
		return err
	}
	_, err = file.Write(f.Data)
	return errors.Join(err, file.Close())
}

func (f *files) mkdir() error { return f.makeDirectory(f.Path, f.Recursive) }

func (f *files) makeDirectory(name string, recursive bool) error {
	if recursive && path.Clean(name) == f.root {
		return nil
	}
	w, last, err := f.parent(name, recursive)
	if err != nil {
		return err
	}
	defer w.close()
	if err := f.permit(path.Join(append(w.names, last)...), false); err != nil {
		return err
	}
	err = unix.Mkdirat(w.top(), last, 0o777)
	var st unix.Stat_t
	there := recursive && errors.Is(err, unix.EEXIST) && unix.Fstatat(w.top(), last, &st, 0) == nil
	if there && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *files) remove() error {
	w, last, err := f.parent(f.Path, false)
	if err != nil {
		if f.Force && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	defer w.close()
	if err := f.permit(path.Join(append(w.names, last)...), f.Recursive); err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstatat(w.top(), last, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			err = unix.Unlinkat(w.top(), last, 0)
		case f.Recursive:
			err = os.RemoveAll(fmt.Sprintf("/proc/self/fd/%d/%s", w.top(), last))
		default:
			err = unix.Unlinkat(w.top(), last, unix.AT_REMOVEDIR)
		}
	}
	if err == nil || f.Force && errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("remove %s: %w", f.Path, err)
}

// copy copies a file or, if that is asked for, a directory. Links in a directory are copied as links; what is neither is left out.
func (f *files) copy() error {
	if !path.IsAbs(f.To) {
		return fmt.Errorf("%q is not an absolute path", f.To)
	}
	source, err := f.open(unix.O_RDONLY)
	if err != nil {
		return err
	}
	info, err := source.Stat()
	if err != nil || !info.IsDir() {
		defer source.Close()
		if err != nil {
			return err
		}
		return f.copyFile(source, f.To)
	}
	if !f.Recursive {
		source.Close()
		return state("%s is a directory", f.Path)
	}
	real, err := whereIs(int(source.Fd()))
	if to := path.Clean(f.To); err == nil && (to == real || strings.HasPrefix(to, real+"/")) {
		err = state("%s cannot be copied into itself", f.Path)
	}
	if err != nil {
		source.Close()
		return err
	}
	left := maxWalk
	return f.copyTree(source, f.To, 0, &left)
}

func (f *files) copyFile(source *os.File, to string) error {
	info, err := regular(source)
	if err != nil {
		return err
	}
	file, err := f.create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, source)
	if err == nil {
		err = file.Chmod(info.Mode().Perm())
	}
	return errors.Join(err, file.Close())
}

// copyTree copies an open directory, which it closes.
func (f *files) copyTree(dir *os.File, to string, depth int, left *int) error {
	defer dir.Close()
	if depth >= maxDepth {
		return state("%s is more than %d directories deep", to, maxDepth)
	}
	if err := f.makeDirectory(to, true); err != nil {
		return err
	}
	list, err := entries(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if *left--; *left < 0 {
			return state("%s has more than %d entries: use a command", f.Path, maxWalk)
		}
		name := path.Join(to, e.Name)
		switch {
		case e.link:
			err = f.copyLink(dir, e.Name, name)
		case !e.Dir && !e.File:
			continue
		default:
			var one *os.File
			if one, err = f.openAt(int(dir.Fd()), e.Name, unix.O_RDONLY|unix.O_NOFOLLOW); err != nil {
				return err
			}
			if e.Dir {
				err = f.copyTree(one, name, depth+1, left)
			} else {
				err = f.copyFile(one, name)
				one.Close()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *files) copyLink(dir *os.File, name, to string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, target)
	if err != nil {
		return err
	}
	w, last, err := f.parent(to, false)
	if err != nil {
		return err
	}
	defer w.close()
	if err := f.permit(path.Join(append(w.names, last)...), false); err != nil {
		return err
	}
	return unix.Symlinkat(string(target[:n]), w.top(), last)
}
