// Package runtimes describes how to run code in each language, and finds the programs that do so on this host.
//
// A Runtime is a row of a table. It lists the programs that run a language, in the order in which they are tried, and how
// each of them runs source code: the files that the job needs and the argument list. Find looks for the programs on this
// host, Installed.Choose picks one for a request, and Choice.Plan returns what to run.
//
// Programs are accepted only in system directories that every jail shows read-only, and in toolchain directories of the
// operator's configuration. Symbolic links are resolved: a program that lies anywhere else, for example in a repository
// or in /tmp, is never chosen, whatever its name. Nothing is executed to inspect it: versions are read from files beside
// programs.
//
// Code and what is compiled from it lie in Dir, on a file system that belongs to the job and disappears with it. A
// compiler runs in the same job as the compiled program, so one timeout covers both, and a failed compilation is a failed
// job: with diagnostics on standard error and an exit code other than 0.
package runtimes

import (
	"path/filepath"
	"slices"
	"strings"

	"corral/job"
)

// Dir is the job's private directory, of mode 0700, for its code and what is compiled from it.
const Dir = "/tmp/job"

// SharedDir replaces Dir where jobs share /tmp: it is private to each job there, too.
const SharedDir = "/var/tmp/job"

// A Runtime is a supported language. See Lookup.
type Runtime struct {
	Name string // as in requests, for example "python"
	File string // name of the source file in Dir; a few runtimes choose another name depending on the code
	Run  string // how code is run, for users
	// Debian names the packages that contain it. If it is "", Elsewhere says how to install it.
	Debian, Elsewhere string
	Hello             string   // code that prints "hello" and a newline
	Version           []string // arguments with which the first candidate prints its version

	ways []way
	env  []string // variables of the runtime, NAME=value
}

// A way is one program that runs a language.
type way struct {
	program string
	// prepare finds what else the program needs, and returns why it cannot be used, or "". nil: it needs nothing else.
	prepare func(s *search, c *Choice) string
	// code plans to run p.source. args plans to run the program with arguments only; nil passes them unchanged.
	code, args func(p *plan)
}

// Candidates returns the names of the programs that run r, in the order in which they are tried.
func (r Runtime) Candidates() []string {
	var names []string
	for _, w := range r.ways {
		if !slices.Contains(names, w.program) {
			names = append(names, w.program)
		}
	}
	return names
}

// Compatible reports whether executable is one of the candidates. Only its last element counts, which may have a version
// suffix as distributions use (python3.11, gcc-12, php8.2).
func (r Runtime) Compatible(executable string) bool {
	return len(r.waysOf(filepath.Base(executable))) > 0
}

// waysOf returns the ways whose program has that name; "" returns all.
func (r Runtime) waysOf(name string) []way {
	if name == "" {
		return r.ways
	}
	var list []way
	for _, w := range r.ways {
		if suffix, ok := strings.CutPrefix(name, w.program); ok && isVersion(suffix) {
			list = append(list, w)
		}
	}
	return list
}

// isVersion reports whether s is a valid suffix of a program's name: empty, or numbers separated by dots.
func isVersion(s string) bool {
	if s == "" {
		return true
	}
	for _, number := range strings.Split(strings.TrimPrefix(s, "-"), ".") {
		if number == "" || strings.Trim(number, "0123456789") != "" {
			return false
		}
	}
	return true
}

// A Choice is a program that was found for a runtime. Installed.Choose makes it.
type Choice struct {
	Runtime    string
	Executable string // name, for example "python3"
	Path       string // path to execute
	Real       string // Path with links resolved
	// Memory is the job's memory limit in bytes, for programs that would otherwise size themselves by the machine's
	// memory.
	Memory int64
	// Shared says that the job shares /tmp and its home directory with other jobs, which may run at the same time: its
	// files are in SharedDir, and its caches in the home directory.
	Shared bool

	way   way
	env   []string          // of the runtime
	with  map[string]string // paths of other programs it needs, by name
	paths string            // PATH
	cache string            // directory of a prebuilt Go cache, or ""
	old   bool              // Java before version 11
}

// dir returns the job's private directory.
func (c Choice) dir() string {
	if c.Shared {
		return SharedDir
	}
	return Dir
}

// A plan accumulates what to run.
type plan struct {
	Choice
	source string
	args   []string

	argv  []string
	files []job.File
	env   []string
}

// Remedy tells users how to install the programs of a runtime.
func (r Runtime) Remedy() string {
	if r.Debian == "" {
		return r.Elsewhere
	}
	return "apt-get install " + r.Debian + ", or add a toolchain directory to the configuration"
}
