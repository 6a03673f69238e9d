package layers

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/token"
	"go/types"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxKnot is the largest number of files of one package that may form a knot: a set of files that all reach each other
// by the package-level names and the methods that they use. A file in a knot cannot be read, tested or moved without
// all others; eight are about as many as a reader holds in mind. A package above it is split: a part of it moves to a
// package of its own, behind a small set of exported names.
const maxKnot = 8

// knots are the packages that are above maxKnot, with the size of their largest knot. A number may only fall, and falls
// in the commit that unties the knot: the test fails on a larger and on a smaller one.
var knots = map[string]int{}

// checkKnots returns what breaks maxKnot or differs from the exceptions in known.
func (g *graph) checkKnots(known map[string]int) []string {
	var broken []string
	for _, name := range sorted(g.pkgs) {
		uses := references(g.fset, g.pkgs[name].files)
		knot := largestKnot(uses)
		switch allowed := known[name]; {
		case len(knot) <= maxKnot && allowed > 0:
			broken = append(broken, fmt.Sprintf("%s: its largest knot has %d files: delete its row from knots",
				name, len(knot)))
		case len(knot) <= maxKnot || len(knot) == allowed:
		case len(knot) < allowed:
			broken = append(broken, fmt.Sprintf("%s: its largest knot has %d files: lower its row in knots, which says %d",
				name, len(knot), allowed))
		default:
			broken = append(broken, fmt.Sprintf("%s: %d files reach each other, at most %d may: move some to a package of their "+
				"own, or remove one of\n%s", name, len(knot), max(allowed, maxKnot), describe(knot, uses)))
		}
	}
	for _, name := range sorted(known) {
		if g.pkgs[name] == nil {
			broken = append(broken, name+": a row of knots for a package that does not exist")
		}
	}
	return broken
}

// describe lists which file of a knot uses which other, and by which names.
func describe(knot []string, uses fileUses) string {
	var lines []string
	for _, from := range knot {
		for _, to := range sorted(uses[from]) {
			if slices.Contains(knot, to) {
				lines = append(lines, fmt.Sprintf("\t%s → %s (%s)", from, to, strings.Join(sorted(uses[from][to]), ", ")))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// onePlatform is the build whose files are searched for knots: files of two builds declare the same names.
var onePlatform = build.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc", CgoEnabled: true, BuildTags: []string{"seccomp"}}

// ofOnePlatform reports whether onePlatform compiles the file name with the source src.
func ofOnePlatform(name string, src []byte) (bool, error) {
	ctx := onePlatform
	ctx.ReleaseTags = build.Default.ReleaseTags
	ctx.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(src)), nil }
	return ctx.MatchFile(path.Split(filepath.ToSlash(name)))
}

// fileUses maps a file to the files that it uses, and those to the names that it uses of them.
type fileUses map[string]map[string]map[string]bool

// references returns which of the files of one package uses which other by the package-level identifiers and the methods
// that the other declares. Fields do not count: a struct's definition is one place, whoever reads its fields.
//
// Imports are empty packages, so that no other package needs to be read: an expression whose type comes from another
// package has none here, and a method called on it is missed.
func references(fset *token.FileSet, files []*ast.File) fileUses {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: emptyImporter{}, FakeImportC: true, Error: func(error) {}}
	pkg, _ := conf.Check("p", fset, files, &info) // each name of an empty import is an error
	uses := fileUses{}
	for _, f := range files {
		uses[fileOf(fset, f.Package)] = map[string]map[string]bool{}
	}
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() || !isShared(object, pkg) {
			continue
		}
		from, to := fileOf(fset, id.Pos()), fileOf(fset, object.Pos())
		if from == to {
			continue
		}
		if uses[from][to] == nil {
			uses[from][to] = map[string]bool{}
		}
		uses[from][to][object.Name()] = true
	}
	return uses
}

// isShared reports whether an object of pkg can be named by all of its files and counts as a reference: it is declared at
// package level, or it is a method.
func isShared(object types.Object, pkg *types.Package) bool {
	if object.Parent() == pkg.Scope() {
		return true
	}
	f, ok := object.(*types.Func)
	return ok && f.Signature().Recv() != nil
}

func fileOf(fset *token.FileSet, pos token.Pos) string {
	return path.Base(filepath.ToSlash(fset.Position(pos).Filename))
}

// emptyImporter imports each package as one without names.
type emptyImporter struct{}

// Import implements types.Importer.
func (emptyImporter) Import(importPath string) (*types.Package, error) {
	name := path.Base(importPath)
	if isMajorVersion(name) {
		name = path.Base(path.Dir(importPath))
	}
	p := types.NewPackage(importPath, name)
	p.MarkComplete()
	return p, nil
}

// isMajorVersion reports whether the last element of an import path is a major version, such as v3.
func isMajorVersion(element string) bool {
	digits, ok := strings.CutPrefix(element, "v")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// largestKnot returns the largest set of files that all reach each other, in order; a single file is one too. Of two
// that are equally large it returns the one whose first file's name is smaller.
func largestKnot(uses fileUses) []string {
	reached := map[string]map[string]bool{}
	for file := range uses {
		reached[file] = reachedFrom(file, uses)
	}
	var largest []string
	for _, file := range sorted(uses) {
		var knot []string
		for _, other := range sorted(reached[file]) {
			if reached[other][file] {
				knot = append(knot, other)
			}
		}
		if len(knot) > len(largest) {
			largest = knot
		}
	}
	return largest
}

// reachedFrom returns the file and all that it reaches.
func reachedFrom(file string, uses fileUses) map[string]bool {
	seen := map[string]bool{file: true}
	for queue := []string{file}; len(queue) > 0; queue = queue[1:] {
		for to := range uses[queue[0]] {
			if !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	return seen
}
