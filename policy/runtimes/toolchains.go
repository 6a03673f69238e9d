package runtimes

import (
	"os"
	"path/filepath"
	"slices"
)

// Toolchains returns the directories below a home directory that contain programs of the runtimes, in the form used in
// the configuration: links resolved, none inside another. names restricts the programs; nil means all. It follows no link
// that leads out of a manager's directory.
//
// The owner of the home directory controls the files it reads: call it as that user. A caller that uses the result with
// other privileges must check that the directories are still in place.
func Toolchains(homeDir string, names []string) []string {
	var list []string
	homeDir, err := filepath.EvalSymlinks(homeDir)
	if err != nil || !filepath.IsAbs(homeDir) {
		return nil
	}
	if names == nil {
		for _, r := range table {
			names = append(names, r.Candidates()...)
		}
	}
	for _, m := range managers {
		for _, dir := range m.in(homeDir, func(string) {}) {
			if !slices.Contains(list, dir) && hasProgram(dir, names) {
				list = append(list, dir)
			}
		}
	}
	return list
}

// hasProgram reports whether one of the names is a program in dir or in its bin.
func hasProgram(dir string, names []string) bool {
	for _, name := range names {
		for _, path := range []string{filepath.Join(dir, "bin", name), filepath.Join(dir, name)} {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return true
			}
		}
	}
	return false
}
