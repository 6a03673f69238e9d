package job

import (
	"fmt"
	"strings"
)

// packageDirs are directories below which package managers and builds put the files of packages, a directory for each package or
// group of packages. Their files run when the packages are used, whatever tools read beside them, and an installation brings many.
var packageDirs = [][]string{
	{"node_modules"}, {"bower_components"}, {".pnpm-store"}, // JavaScript
	{"site-packages"}, {"dist-packages"}, {".venv"}, {"venv"}, {".tox"}, {".nox"}, // Python
	{"vendor"}, {"pkg", "mod"}, // Go, PHP, Ruby, and others that copy packages to vendor
	{"target"}, {".cargo", "registry"}, {".cargo", "git"}, // Rust, Java
	{".m2", "repository"}, {"Pods"}, // Java, Swift
}

// unasked has the names, in lower case, of files and directories that git and shells run or obey without asking. If the value
// is true, the name belongs to git or to a directory that git takes for a repository, and is shown wherever it is.
var unasked = map[string]bool{
	".git": true, "hooks": true, "config": true, "head": true,
	".githooks": false, ".husky": false, ".lefthook": false, ".hg": false,
	".envrc": false, ".direnv": false, ".autoenv": false, ".autoenv.zsh": false, ".rvmrc": false,
}

// RankSensitive divides sensitive paths for people to read: shown has hooks and what else runs unasked, then other paths, each in the
// order of list; counted has those of installed packages, if there are several. path returns the path of an element of list.
func RankSensitive[T any](list []T, path func(T) string) (shown, counted []T) {
	var others []T
	for _, e := range list {
		names := strings.Split(path(e), "/")
		first, git := runsUnasked(names)
		switch {
		case !git && inPackage(names):
			counted = append(counted, e)
		case first:
			shown = append(shown, e)
		default:
			others = append(others, e)
		}
	}
	shown = append(shown, others...)
	if len(counted) == 1 {
		return append(shown, counted...), nil
	}
	return shown, counted
}

// runsUnasked reports whether a path has a name among unasked, and whether one of them is git's.
func runsUnasked(names []string) (is, git bool) {
	for _, name := range names {
		of, found := unasked[strings.ToLower(name)]
		is, git = is || found, git || of
	}
	return is, git
}

// inPackage reports whether a path is in a directory below one of packageDirs. Below other directories with a dot nothing is: they
// are settings of tools, which read what is below them whatever its name.
func inPackage(names []string) bool {
	for i := range names {
		for _, dir := range packageDirs {
			if n := i + len(dir); n+1 < len(names) && strings.Join(names[i:n], "/") == strings.Join(dir, "/") {
				return true
			}
		}
		if strings.HasPrefix(names[i], ".") {
			return false
		}
	}
	return false
}

// SensitiveInPackages returns the note about n > 1 sensitive paths of installed packages. example is one of them, quoted. where says
// where all are listed, "" if nowhere.
func SensitiveInPackages(n int, example, where string) string {
	if where != "" {
		where = " (" + where + ")"
	}
	return fmt.Sprintf("%d sensitive paths changed below installed packages, such as %s%s", n, example, where)
}

// IncompleteNote says that the check for sensitive paths was incomplete, and where; "" if it was complete.
func (r *Result) IncompleteNote(quote func(string) string) string {
	if !r.SensitiveIncomplete {
		return ""
	}
	note := "the check for changed sensitive paths did not cover the whole repository"
	if r.SensitiveMissed != "" {
		note += ": " + quote(r.SensitiveMissed) + " could not be examined"
	}
	return note
}

// maxMounts is the maximum number of places that MountNote names.
const maxMounts = 5

// MountNote says where a job could not write because another file system is mounted there; "" if it has no such places to name.
func (r *Result) MountNote(quote func(string) string) string {
	if len(r.Mounts) == 0 {
		return ""
	}
	var names []string
	for _, p := range r.Mounts[:min(len(r.Mounts), maxMounts)] {
		names = append(names, quote(p))
	}
	note := "other file systems are mounted in the repository, which jobs do not see; these directories are read-only inside: "
	note += strings.Join(names, ", ")
	if more := len(r.Mounts) - maxMounts; more > 0 {
		note += fmt.Sprintf(" and %d more", more)
	}
	return note
}

// SensitiveNotes returns what people are told about the sensitive paths that the job changed: a phrase for each, for at most the first
// most of them, and phrases with the number of others. where is as for SensitiveInPackages.
func (r *Result) SensitiveNotes(most int, quote func(string) string, where string) []string {
	paths, counted := RankSensitive(r.Sensitive, func(p string) string { return p })
	var notes []string
	for _, p := range paths[:min(len(paths), most)] {
		notes = append(notes, "sensitive path changed: "+quote(p))
	}
	if len(counted) > 0 {
		notes = append(notes, SensitiveInPackages(len(counted), quote(counted[0]), where))
	}
	if n := max(len(paths)-most, 0) + r.SensitiveMore; n == 1 {
		notes = append(notes, "and 1 more sensitive path changed")
	} else if n > 1 {
		notes = append(notes, fmt.Sprintf("and %d more sensitive paths changed", n))
	}
	return notes
}
