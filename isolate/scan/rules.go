package scan

// Rules are what the table says of the entries of one directory, for who walks a repository in another way than a
// [Scanner] does. The zero value is of a directory in which nothing is sensitive.
type Rules struct{ zone *zone }

// RepositoryRules returns the rules for the root of a repository.
func RepositoryRules() Rules { return Rules{compile(Table)} }

// Entry says whether the entry name, a directory or something else, is sensitive, and returns the rules for what is in it
// if it is a directory. Some rules hold only in directories that git would take for a bare repository: bare is called for
// those, and not otherwise.
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

// Hides says how the file name, for which Entry returns false, may hide something from git. bare is as for Entry.
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

// Bare says whether git would take a directory with these entries for a bare repository.
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

// IsDotGit says whether some file system would take name for .git.
func IsDotGit(name string) bool {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], []byte(name))
	return ok && (string(folded) == ".git" || string(folded) == "git~1")
}
