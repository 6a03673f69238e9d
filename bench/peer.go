package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"corral/seccomp"
)

// errAbsent is the error of a peer that bench/setup-peers has not fetched.
var errAbsent = errors.New("it is not there; bench/setup-peers fetches it")

// A peerMaker has the name of a peer and makes its rows.
type peerMaker struct {
	name string
	rows table
}

// one makes a table of a single row that needs no cleanup.
func one(f func(*options) *Row) table {
	return func(o *options) ([]*Row, func(), error) { return []*Row{f(o)}, func() {}, nil }
}

// debian returns the path of a program that bench/setup-peers has unpacked, or of the machine's own, and the environment
// with which it finds its libraries.
func (o *options) debian(path string) (program string, env []string, err error) {
	root := filepath.Join(o.peers, "debian")
	env = []string{"PATH=" + filepath.Join(root, "usr/bin") + ":/usr/bin:/bin"}
	program = filepath.Join(root, path)
	if _, err := os.Stat(program); err == nil {
		libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
		if len(libraries) == 1 {
			env = append(env, "LD_LIBRARY_PATH="+libraries[0])
		}
		return program, env, nil
	}
	program, err = exec.LookPath(filepath.Base(path))
	if err != nil {
		return "", nil, errAbsent
	}
	return program, env, nil
}

// filter writes corral's system call filter to a file, for peers that can load it.
func (o *options) filter() (file string, err error) {
	filter, err := seccomp.Compile("default", runtime.GOARCH)
	file = filepath.Join(o.dir, "filter")
	return file, errors.Join(err, os.WriteFile(file, filter, 0o600))
}

// version returns the version of an npm package, "" if unknown.
func version(dir string) string {
	var p struct{ Version string }
	text, _ := os.ReadFile(filepath.Join(dir, "package.json"))
	_ = json.Unmarshal(text, &p)
	return p.Version
}

// removeGroups removes a peer's cgroups, which have no process left, in all hierarchies, and returns those that remain.
func removeGroups(group string) (left []string) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(filepath.Join(root, group))
		for _, top := range groups {
			var dirs []string
			_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for i := len(dirs) - 1; i >= 0; i-- {
				_ = unix.Rmdir(dirs[i])
			}
			if _, err := os.Stat(top); err == nil {
				left = append(left, top)
			}
		}
	}
	return left
}
