package scan

import "slices"

// Rules are the table's rules for the entries of one directory, for callers that walk a repository in another way than a
// [Scanner] does. The zero value is for a directory in which nothing is sensitive.
type Rules struct {
	zones []*zone // of the directory itself, and of the links that lead to it
	links *Links  // nil: not followed
	path  string  // of the directory, relative to the repository, for links
}

// RepositoryRules returns the rules for the root of a repository, without what its links lead to.
func RepositoryRules() Rules { return Rules{zones: []*zone{compile(Table)}} }

// Entry reports whether the entry name, a directory or another file, is sensitive, and returns the rules for its content
// if it is a directory. Some rules apply only in directories that git would take for a bare repository: bare is called
// only for those.
func (r Rules) Entry(name string, directory bool, bare func() bool) (sensitive bool, below Rules) {
	if r.links != nil {
		sensitive, below = r.links.entry(spot{path: r.path}.join(name).path, directory)
	}
	for _, z := range r.zones {
		k := z.lookup([]byte(name))
		if k.bareOnly && !bare() {
			k = z.other([]byte(name))
		}
		if k.dir != nil {
			below.zones = append(below.zones, k.dir)
		}
		if directory {
			sensitive = sensitive || k.trackDir && k.row != noRow
		} else {
			sensitive = sensitive || k.track && k.row != noRow
		}
	}
	return sensitive, below
}

// Bare reports whether git would take a directory with these entries for a bare repository.
func (r Rules) Bare(names []string) bool {
	return slices.ContainsFunc(r.zones, func(z *zone) bool {
		if !z.tree {
			return false
		}
		var marks uint8
		for _, name := range names {
			marks |= z.lookup([]byte(name)).mark
		}
		return lookalike(marks)
	})
}

// IsDotGit reports whether any file system would take name for .git.
func IsDotGit(name string) bool {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], []byte(name))
	return ok && (string(folded) == ".git" || string(folded) == "git~1")
}
