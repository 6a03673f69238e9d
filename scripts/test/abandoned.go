package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// machineGroup begins the names of the cgroups of test machines; the process id of `enter` follows.
const machineGroup = "sandboxtest-"

// removeAbandoned removes the cgroups of test machines whose `enter` was killed before it could. No run may be in progress:
// groups without processes could be those of a machine that starts.
func removeAbandoned() error {
	list, err := hierarchies("")
	for _, h := range list {
		dirs, globbed := filepath.Glob(filepath.Join(h.group, machineGroup+"*"))
		err = errors.Join(err, globbed)
		for _, dir := range dirs {
			if !inUse(dir) {
				err = errors.Join(err, removeGroup(dir))
			}
		}
	}
	return err
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
