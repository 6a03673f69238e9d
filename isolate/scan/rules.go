package scan

// Rules are the table's rules for the entries of one directory, for callers that walk a repository in another way than a
// [Scanner] does. The zero value is for a directory in which nothing is sensitive.
type Rules struct{ zone *zone }

// RepositoryRules returns the rules for the root of a repository.
func RepositoryRules() Rules { return Rules{compile(Table)} }

// Entry reports whether the entry name, a directory or another file, is sensitive, and returns the rules for its content
// if it is a directory. Some rules apply only in directories that git would take for a bare repository: bare is called
// only for those.
func (r Rules) Entry(name string, directory bool, bare func() bool) (sensitive bool, below Rules) {
	if r.zone == nil {
		return false, Rules{}
	}
	k := r.zone.lookup([]byte(name))
	if k.bareOnly && !bare() {
		k = r.zone.other([]byte(name))
	}
	if directory {
		return k.trackDir && k.row != noRow, Rules{k.dir}
	}
	return k.track && k.row != noRow && k.content == noContent, Rules{k.dir}
}

// Hides returns how the file name, for which Entry returns false, may hide something from git. bare is as for Entry.
func (r Rules) Hides(name string, bare func() bool) Hiding {
	if r.zone == nil {
		return Hiding{}
	}
	k := r.zone.lookup([]byte(name))
	if k.bareOnly && !bare() {
		return Hiding{}
	}
	return Hiding{k.content}
}

// Bare reports whether git would take a directory with these entries for a bare repository.
func (r Rules) Bare(names []string) bool {
	if r.zone == nil || !r.zone.tree {
		return false
	}
	var marks uint8
	for _, name := range names {
		marks |= r.zone.lookup([]byte(name)).mark
	}
	return lookalike(marks)
}

// IsDotGit reports whether any file system would take name for .git.
func IsDotGit(name string) bool {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], []byte(name))
	return ok && (string(folded) == ".git" || string(folded) == "git~1")
}
