package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestWhereToChange: each path of the table that leads a newcomer to the code exists, and each name is declared in one of the
// files of its row.
func TestWhereToChange(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n## Where to change what\n")
	table, _, closed := strings.Cut(table, "\n## ")
	if !ok || !closed {
		t.Fatal("ARCHITECTURE.md has no section \"Where to change what\" with another behind it")
	}
	rows := 0
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) == 2 && strings.Contains(cells[1], "`") {
			rows++
			for _, problem := range checkWhere(root, cells[1]) {
				t.Errorf("%s: %s", strings.TrimPrefix(cells[0], "| "), problem)
			}
		}
	}
	if rows < 8 {
		t.Errorf("the table has %d rows with code, want at least 8", rows)
	}
	for _, wrong := range []string{
		"`no/such/file.go`", "`noSuchName` in `internal/layers`", "`load`", "`Limits` in `internal/usage/run.go`", // which uses it
	} {
		if len(checkWhere(root, wrong)) == 0 {
			t.Errorf("%s: no problem was found", wrong)
		}
	}
}

// checkWhere returns what is wrong with the paths and names of a cell. A path below the module is from its root, or from a
// directory that the same cell names; a name without a dot or slash is declared in one of the cell's files.
func checkWhere(root, cell string) (problems []string) {
	var files, names []string
	quoted := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1)
	dirs := []string{""}
	for _, q := range quoted {
		if info, err := os.Stat(filepath.Join(root, q[1])); err == nil && info.IsDir() {
			dirs = append(dirs, q[1])
		}
	}
	for _, q := range quoted {
		found := false
		for _, dir := range dirs {
			matches, _ := filepath.Glob(filepath.Join(root, dir, q[1])) // the only error is one of the pattern
			files, found = append(files, matches...), found || len(matches) > 0
		}
		switch {
		case found, strings.HasPrefix(q[1], "/"), q[1] == "command/exec", strings.HasPrefix(q[1], "corral"): // of the host, or a program
		case strings.ContainsAny(q[1], "./"):
			problems = append(problems, q[1]+" does not exist")
		default:
			names = append(names, q[1])
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(files, func(file string) bool { return declares(file, name) }) {
			problems = append(problems, name+" is declared in none of the files that are named with it")
		}
	}
	return problems
}

// declares reports whether a file declares a name, or one of a directory's Go files does.
func declares(path, name string) bool {
	files, _ := filepath.Glob(filepath.Join(path, "*.go")) // the only error is one of the pattern
	if files = slices.DeleteFunc(files, isTest); len(files) == 0 {
		files = []string{path}
	}
	return slices.ContainsFunc(files, func(file string) bool { return slices.Contains(declared(file), name) })
}

// declared returns the functions, methods, types, variables and constants of a Go file, and the functions and tables of a C file.
func declared(file string) (names []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		src, _ := os.ReadFile(file) // a file that cannot be read declares nothing
		for _, m := range regexp.MustCompile(`(?m)^\w.*?\b(\w+)[(\[]`).FindAllStringSubmatch(string(src), -1) {
			names = append(names, m[1])
		}
		return names
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name.Name)
			return false // what it declares inside is its own
		case *ast.TypeSpec:
			names = append(names, n.Name.Name)
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names = append(names, name.Name)
			}
		}
		return true
	})
	return names
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }
