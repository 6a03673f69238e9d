package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"corral/internal/config/strict"
	"corral/internal/directory"
	"corral/internal/nearest"
)

// An Edit adds something to a configuration, or removes or replaces an entry. Exactly one of its fields is set.
type Edit struct {
	AddRepo      *Repo
	RemoveRepo   string // an id
	AddPrincipal *Principal
	Rotate       *Rotation
	// RemovePrincipal is the name of a principal, whose token is revoked by that.
	RemovePrincipal string
	AddNetwork      *NetworkEdit
}

// A Change is what an Edit does to the file called Name: it creates an entry file, removes one (with nil Content) or replaces one, or
// replaces the configuration file.
type Change struct {
	Name    string
	Content []byte
	Replace bool // Content is that of an entry file that exists
}

// Apply returns the change that e makes beside or in the configuration file at path, and the configuration before and after it.
func (e Edit) Apply(path string, files Files) (change Change, before, after Config, err error) {
	l, err := load([]Files{files}, lookupUser)
	if err != nil {
		return change, before, after, err
	}
	if e.Rotate != nil || e.RemovePrincipal != "" {
		change, after, err = e.changePrincipal(path, l, files)
		return change, l.Config, after, err
	}
	if e.AddNetwork != nil {
		change, after, err = e.AddNetwork.change(path, l, files)
		return change, l.Config, after, err
	}
	want, at, err := e.change(path, l)
	if err != nil {
		return change, before, after, err
	}
	switch {
	case e.AddRepo != nil:
		change = added(path, reposDir, e.AddRepo.ID, files.Repos, e.Entry())
		files.Repos = inserted(files.Repos, change)
	case e.AddPrincipal != nil:
		change = added(path, principalsDir, e.AddPrincipal.Name, files.Principals, e.Entry())
		files.Principals = inserted(files.Principals, change)
	case l.repos[at].own:
		change.Name = l.repos[at].File()
		files.Repos = slices.DeleteFunc(slices.Clone(files.Repos), func(f File) bool { return f.Name == change.Name })
	default:
		change = Change{Name: files.Main.Name, Content: withoutLines(string(files.Main.Content), l.roots[0], l.repos[at].Node)}
		files.Main = &File{change.Name, change.Content}
	}
	after, err = parse([]Files{files}, lookupUser)
	if err == nil && e.matches(after, want) {
		return change, l.Config, after, nil
	}
	return Change{}, before, Config{}, e.failed(path, change, l, at, err)
}

// matches returns whether the configuration after an edit is the wanted one. An entry that is added may be anywhere in its list,
// which has the order of the names of files.
func (e Edit) matches(after, want Config) bool {
	byID := func(a, b Repo) int { return strings.Compare(a.ID, b.ID) }
	byName := func(a, b Principal) int { return strings.Compare(a.Name, b.Name) }
	after.Repos, want.Repos = slices.SortedFunc(slices.Values(after.Repos), byID), slices.SortedFunc(slices.Values(want.Repos), byID)
	after.Principals = slices.SortedFunc(slices.Values(after.Principals), byName)
	want.Principals = slices.SortedFunc(slices.Values(want.Principals), byName)
	return reflect.DeepEqual(after, want)
}

// failed returns the error of an edit after which the configuration is not the wanted one. If it was right before, the entry is
// what is wrong: an id that is not possible, a profile that does not exist.
func (e Edit) failed(path string, change Change, l *loader, at int, err error) error {
	var wrong strict.Errors
	if e.RemoveRepo == "" && errors.As(err, &wrong) && wrong[0].File == change.Name {
		return fmt.Errorf("%s: %s", path, wrong[0].Message)
	}
	if e.RemoveRepo == "" {
		return errors.Join(fmt.Errorf("%s: the entry cannot be added", path), err)
	}
	first, last := l.repos[at].Lines()
	return fmt.Errorf("%s is written in a way that this program cannot change\nhint: remove the entry in an editor: it is on lines %d to %d",
		path, first, last)
}

// change returns the configuration with the edit. at is the index of the repository to remove.
func (e Edit) change(path string, l *loader) (c Config, at int, err error) {
	c = l.Config
	switch {
	case e.AddRepo != nil:
		if err := l.conflict(e.AddRepo); err != nil {
			return c, 0, err
		}
		c.Repos = append(slices.Clone(c.Repos), *e.AddRepo)
	case e.AddPrincipal != nil:
		for i, p := range c.Principals {
			if p.Name == e.AddPrincipal.Name {
				return c, 0, fmt.Errorf("a principal %q exists already at %s\nhint: remove its entry, or choose another name",
					p.Name, l.principals[i].Place())
			}
		}
		c.Principals = append(slices.Clone(c.Principals), *e.AddPrincipal)
	default:
		at = slices.IndexFunc(c.Repos, func(r Repo) bool { return r.ID == e.RemoveRepo })
		if at < 0 {
			return c, 0, fmt.Errorf("%s: %w", path, c.unknownRepo(e.RemoveRepo))
		}
		c.Repos = slices.Delete(slices.Clone(c.Repos), at, at+1)
		if len(c.Repos) == 0 {
			c.Repos = nil
		}
	}
	return c, at, nil
}

// conflict returns why r cannot be added.
func (l *loader) conflict(r *Repo) error {
	for i, o := range l.Repos {
		if o.Path == r.Path {
			return fmt.Errorf("repository %s exists already, as %q at %s", strict.Shown(o.Path), strict.Shorten(o.ID), l.repos[i].Place())
		}
		if directory.Overlap(o.Path, r.Path) {
			return fmt.Errorf("%s overlaps the repository %q, %s, at %s: jobs in one could replace the other, so neither would be "+
				"served\nhint: remove that one with corral repo remove",
				strict.Shown(r.Path), strict.Shorten(o.ID), strict.Shown(o.Path), l.repos[i].Place())
		}
	}
	for i, o := range l.Repos {
		if o.ID == r.ID {
			return fmt.Errorf("a repository %q exists already at %s: %s\nhint: choose another id with --id",
				strict.Shorten(o.ID), l.repos[i].Place(), strict.Shown(o.Path))
		}
	}
	return nil
}

func (c *Config) unknownRepo(id string) error {
	var known []string
	for _, r := range c.Repos {
		known = append(known, r.ID)
	}
	err := unknown("repository", id, known)
	if !strings.Contains(err.Error(), "\nhint: ") {
		err = fmt.Errorf("%w\nhint: corral repo list has the ids; corral repo add DIR adds one", err)
	}
	return err
}

// unknown returns the error about a name that no entry of this kind has. It suggests the nearest one of those known.
func unknown(kind, name string, known []string) error {
	err := fmt.Errorf("there is no %s %q", kind, strict.Shorten(name))
	if near := nearest.Of(name, known); near != "" {
		err = fmt.Errorf("%w\nhint: did you mean %q?", err, near)
	}
	return err
}

// Entry returns the entry that the edit adds, as the content of a file.
func (e Edit) Entry() string {
	if e.AddRepo != nil {
		r := e.AddRepo.written()
		return language(nil).Write(&r)
	}
	return language(nil).Write(e.AddPrincipal)
}

// added returns the change that creates an entry file in a directory beside the file at path. others are the files there.
func added(path, dir, id string, others []File, content string) Change {
	name := func(base string) string { return filepath.Join(filepath.Dir(path), dir, base+".yaml") }
	file := name(id)
	taken := func(f File) bool { return f.Name == file }
	if !plainName(id) || id[0] == '.' || slices.ContainsFunc(others, taken) {
		file = name(fmt.Sprintf("entry-%x", sha256.Sum256([]byte(id))))
	}
	return Change{Name: file, Content: []byte(content)}
}

// inserted returns files with the one of a change, in lexical order.
func inserted(files []File, change Change) []File {
	at, _ := slices.BinarySearchFunc(files, change.Name, func(f File, name string) int { return strings.Compare(f.Name, name) })
	return slices.Insert(slices.Clone(files), at, File{change.Name, change.Content})
}

// withoutLines returns content without an entry of repos and the comment above it, and without the key if it was the only entry. It
// removes whole lines, which is right for lists as people write them: the caller parses the result and compares.
func withoutLines(content string, root, entry strict.Node) []byte {
	lines := strings.SplitAfter(content, "\n")
	first, last := entry.Lines()
	from := first - 1
	dash := strings.Index(lines[from], "-")
	for dash >= 0 && from > 0 && strings.HasPrefix(lines[from-1], strings.Repeat(" ", dash)+"#") {
		from--
	}
	if len(root.At("repos").Items()) == 1 {
		for from > 0 && !strings.HasPrefix(lines[from], "repos:") {
			from--
		}
	}
	return []byte(strings.Join(slices.Delete(lines, from, last), ""))
}
