package config

import (
	"fmt"
	"slices"

	"corral/internal/config/strict"
)

// changePrincipal returns the change of an edit that rotates or removes a token, and the configuration after it. Only an entry
// file is changed: a list in the configuration file is as its author wrote it.
func (e Edit) changePrincipal(path string, l *loader, files Files) (change Change, after Config, err error) {
	name := e.RemovePrincipal
	if e.Rotate != nil {
		name = e.Rotate.Name
	}
	at := slices.IndexFunc(l.Principals, func(p Principal) bool { return p.Name == name })
	if at < 0 {
		return change, after, fmt.Errorf("%s: %w", path, l.unknownPrincipal(name))
	}
	if !l.principals[at].own {
		first, last := l.principals[at].Lines()
		return change, after, fmt.Errorf("principal %q is in the list of %s\nhint: change its entry in an editor: it is on lines %d to %d",
			strict.Shorten(name), l.principals[at].File(), first, last)
	}
	change = Change{Name: l.principals[at].File()}
	if e.Rotate != nil {
		p, err := e.Rotate.of(l.Principals[at])
		if err != nil {
			return Change{}, after, err
		}
		change.Content, change.Replace = []byte(language(nil).Write(&p)), true
	}
	files.Principals = slices.DeleteFunc(slices.Clone(files.Principals), func(f File) bool { return f.Name == change.Name })
	if change.Replace {
		files.Principals = inserted(files.Principals, change)
	}
	after, err = parse([]Files{files}, lookupUser)
	return change, after, err
}

func (c *Config) unknownPrincipal(name string) error {
	var known []string
	for _, p := range c.Principals {
		known = append(known, p.Name)
	}
	return unknown("principal", name, known)
}
