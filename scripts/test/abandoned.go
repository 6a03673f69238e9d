package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// machineGroup begins the names of the cgroups of test machines; the process id of `enter` follows.
const machineGroup = "sandboxtest-"

var machineName = regexp.MustCompile(`^` + machineGroup + `[0-9]+$`)

// removeAbandoned removes the cgroups of test machines whose `enter` was killed before it could, wherever they are: the run that was
// killed can have been in another group than this process, such as that of another login. No run may be in progress: groups without
// processes could be those of a machine that starts.
func removeAbandoned() error {
	list, err := hierarchies("")
	for _, h := range list {
		for _, dir := range machineGroups(h.point) {
			if !inUse(dir) {
				err = errors.Join(err, removeGroup(dir))
			}
		}
	}
	return err
}

// machineGroups returns the groups of test machines at or below a directory of a hierarchy.
func machineGroups(dir string) (found []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if machineName.MatchString(d.Name()) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// inUse reports whether a group or one below it has a process, as far as that can be read.
func inUse(dir string) (found bool) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if b, err := os.ReadFile(filepath.Join(path, "cgroup.procs")); err == nil && len(b) > 0 {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}
