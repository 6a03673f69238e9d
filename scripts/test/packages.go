package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "corral"

// tags are the tags of the static programs. Without seccomp, libcontainer is built without filters. With the other two, packages net
// and os/user need no C, so packages that import them are compiled once for programs and tests.
const tags = "seccomp,netgo,osusergo"

// needsPackage is the package with which tests declare what they need of the machine.
const needsPackage = module + "/internal/test/sandboxtest"

// compileFlags returns the flags of the Makefile, so that a package is compiled once for programs and tests.
func compileFlags() []string { return []string{"-trimpath", "-gcflags=all=-dwarf=false"} }

// buildFlags returns the flags of a build of tests.
func buildFlags() []string { return append(compileFlags(), "-tags", tags) }

// raceFlags returns the flags of a build with the race detector. Two packages are C that was translated into Go, the most of SQLite. Their
// memory is not Go's, so the detector does not look at it, and asking it takes most of their time. The driver above them is looked at.
func raceFlags() []string {
	const without = "=-dwarf=false -race=false"
	return []string{"-race", "-gcflags=modernc.org/libc/..." + without, "-gcflags=modernc.org/sqlite/lib" + without}
}

// compilerGOGC lets the heap of a compiler grow to five times what lives before it collects: a tenth less time, for some 100 MB.
const compilerGOGC = "GOGC=400"

// A testPackage is a package that has tests.
type testPackage struct {
	path    string // import path
	dir     string
	machine bool // it can have machine tests: its tests import sandboxtest
	alone   bool // neither the package nor its tests start a goroutine: those that call it have tests of their own
}

// short returns the import path without the module, "." for its root.
func (p testPackage) short() string { return strings.TrimPrefix(p.path, module+"/") }

// binary returns the name of the package's test binary: unique among all packages, unlike what `go test -c` chooses.
func (p testPackage) binary() string { return strings.ReplaceAll(p.short(), "/", ".") + ".test" }

// withoutRace are the trees of packages in which the race detector has nothing to find, and why.
var withoutRace = []struct{ tree, reason string }{
	{"cmd", "tests drive the built programs"},
	{"docs", "tests read pages"},
	{"workspace/image", "tests of archives without goroutines, at a tenth of the speed"},
	{"policy/runtimes", "tests run languages in jails"},
	{"scripts", "tests drive the built programs, and the clients of others"},
	{"store/index", "SQLite is Go here, and three times slower with it: raceToo has the tests in which goroutines meet"},
	{"internal/layers", "reads source"},
	{"internal/test/logtest", "generates text"},
	{"seccomp", "tests are children of one thread that load a filter"},
	{"policy/starlark", "measures time and memory of an interpreter that has one goroutine"},
	{"isolate/scan", "one goroutine that reads directories"},
	{"workspace/changes/layer", "one goroutine that reads directories"},
}

// raceToo are machine tests that run with the race detector, too: where the supervisor runs in the test's process and several
// jobs, sessions or connections interact. `test soak` runs all of them.
var raceToo = map[string]string{
	"store/index":           "^Test(Concurrent|PurgeDuringAdd|Cancelled|Closed|Idle)$",
	"isolate":               "^Test(ManyAtOnce|NoGrowth|Close|Requests|Slots|Audit|Alone|Reload)",
	"isolate/cell":          "^Test(Pool|NoSlots|UsedSlots)",
	"isolate/test/sessions": "^Test(Close|SessionsApart)",
}

// raced reports whether the package's unit tests run with the race detector.
func (p testPackage) raced() bool {
	return !p.alone && !slices.ContainsFunc(withoutRace, func(w struct{ tree, reason string }) bool {
		return p.short() == w.tree || strings.HasPrefix(p.short(), w.tree+"/")
	})
}

// listPackages returns the packages of the patterns that have tests.
func listPackages(ctx context.Context, patterns []string) ([]testPackage, error) {
	args := append([]string{"list", "-tags", tags, "-json=ImportPath,Dir,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []testPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir                                                         string
			GoFiles, CgoFiles, TestGoFiles, XTestGoFiles, TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			machine := slices.Contains(p.TestImports, needsPackage) || slices.Contains(p.XTestImports, needsPackage) || p.ImportPath == needsPackage
			starts, err := startGoroutines(p.Dir, slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles))
			if err != nil {
				return nil, err
			}
			list = append(list, testPackage{p.ImportPath, p.Dir, machine, !starts})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no tests in %s", strings.Join(patterns, " "))
	}
	return list, nil
}

// startGoroutines reports whether a file starts a goroutine, or imports what calls its functions in goroutines.
func startGoroutines(dir string, files []string) (bool, error) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		starts := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return strings.HasPrefix(i.Path.Value, `"net/http`) })
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.SelectorExpr: // of WaitGroup and errgroup; of time and context; of testing; of sandboxtest
				starts = starts || slices.Contains([]string{"Go", "AfterFunc", "Parallel", "OnThread"}, n.Sel.Name)
			}
			return !starts
		})
		if starts {
			return true, nil
		}
	}
	return false, nil
}
