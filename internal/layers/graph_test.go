// Package layers defines the import graph of this module: which package may import what, and why.
//
// Its tests read the source of the whole module. They fail on each import that no rule allows.
//
// The source is parsed in this process rather than by `go list`: the test cache tracks the files that a test opens, not
// those that its children open, so a cached pass would hide a new import that breaks a rule.
//
// A package is named by its path below the module ("isolate/client"), a library by the path of its module
// ("golang.org/x/sys"). A package *reaches* what it imports, and what those of its imports that belong to
// this module reach. Imports of libraries are not followed. Files of tests do not count.
package layers

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the path of the module that is checked.
const module = "corral"

// A pkg is one package.
type pkg struct {
	imports map[string]string // import path → a file that imports it
}

// A graph holds the packages of the module by name, and the libraries that it requires.
type graph struct {
	pkgs      map[string]*pkg
	libraries []string
}

// newGraph returns a graph without packages; mod is the text of the go.mod.
func newGraph(mod string) *graph {
	return &graph{pkgs: map[string]*pkg{}, libraries: required(mod)}
}

// load reads the module whose go.mod is in root.
func load(root string) (*graph, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	g := newGraph(string(mod))
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && foreign(name, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return g.add(rel, src)
	})
	return g, err
}

// foreign reports whether the go command excludes the directory from the module.
func foreign(name, base string) bool {
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod")) // another module
	return err == nil
}

// required returns the module paths that a go.mod requires. It reads the layout that `go mod tidy` writes.
func required(mod string) []string {
	var paths []string
	for line := range strings.Lines(mod) {
		line, _, _ = strings.Cut(line, "//")
		f := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(f) == 2 && strings.HasPrefix(f[1], "v") {
			paths = append(paths, f[0])
		}
	}
	return paths
}

// add adds a file to the graph; name is its path below the root of the module.
func (g *graph) add(name string, src []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.ImportsOnly)
	if err != nil {
		return err
	}
	if !everBuilt(file) {
		return nil
	}
	dir := path.Dir(filepath.ToSlash(name))
	p := g.pkgs[dir]
	if p == nil {
		p = &pkg{imports: map[string]string{}}
		g.pkgs[dir] = p
	}
	for _, i := range file.Imports {
		p.imports[strings.Trim(i.Path.Value, "\"`")] = name
	}
	return nil
}

// everBuilt reports whether any of our builds compiles the file. Tags that some of our builds set may have either value,
// those of Linux and of the compiler are true, and all others are false.
func everBuilt(file *ast.File) bool {
	var expr constraint.Expr
	for _, group := range file.Comments {
		if group.Pos() > file.Package {
			break
		}
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil {
				expr = x
			}
		}
	}
	if expr == nil {
		return true
	}
	either := []string{"amd64", "arm64", "cgo", "race", "seccomp"}
	for set := range 1 << len(either) {
		built := expr.Eval(func(tag string) bool {
			if i := slices.Index(either, tag); i >= 0 {
				return set&(1<<i) != 0
			}
			return tag == "linux" || tag == "unix" || tag == "gc" || strings.HasPrefix(tag, "go1.")
		})
		if built {
			return true
		}
	}
	return false
}

// local returns the name of the package with an import path, and whether it belongs to this module.
func local(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// std reports whether an import path belongs to the standard library: only there the first element has no dot. "C" does
// not belong to it, since it makes a program need a C compiler and a libc.
func std(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") && first != module && importPath != "C"
}

// library returns the required module that an import path belongs to (the longest match), or the path if there is none.
func (g *graph) library(importPath string) string {
	best := ""
	for _, l := range g.libraries {
		if under(importPath, l) && len(l) > len(best) {
			best = l
		}
	}
	if best == "" {
		return importPath
	}
	return best
}

// under reports whether the path p is tree or below it.
func under(p, tree string) bool {
	return p == tree || strings.HasPrefix(p, tree+"/")
}

// A step is a package that is reached, and the chain of imports to it.
type step struct {
	target string // name of a package, or import path of a package outside
	std    bool   // the target belongs to the standard library
	way    string // "cmd/corral → job → net/http (job/run.go)"
}

// reach returns every package that from reaches, once each, nearest first.
func (g *graph) reach(from string) []step {
	var found []step
	seen := map[string]bool{from: true}
	queue := []step{{target: from, way: from}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		p := g.pkgs[at.target]
		if p == nil {
			continue
		}
		for _, i := range sorted(p.imports) {
			target := i
			name, isLocal := local(i)
			if isLocal {
				target = name
			}
			if seen[target] {
				continue
			}
			seen[target] = true
			way := at.way + " → " + target
			if isLocal {
				queue = append(queue, step{target: target, way: way})
			}
			found = append(found, step{target, !isLocal && std(i), fmt.Sprintf("%s (%s)", way, p.imports[i])})
		}
	}
	return found
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
