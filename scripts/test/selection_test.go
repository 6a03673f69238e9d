package main

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSelection: each name in a row of the guest's selection is that of a test of the row's package. test-vm refuses such a
// row, too, but minutes later. Names of subtests are known to the running test alone.
func TestSelection(t *testing.T) {
	root := filepath.Join("..", "..")
	f, err := os.Open(filepath.Join(root, "scripts/vm/selection"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		rows++
		if len(fields) < 4 {
			t.Errorf("%q has no reason", lines.Text())
			continue
		}
		tests := testsOf(t, filepath.Join(root, fields[0]))
		if len(tests) == 0 {
			t.Errorf("%s: no tests in that package", fields[0])
			continue
		}
		// In an expression with subtests, alternatives stand inside parentheses only.
		top, _, _ := strings.Cut(fields[1], "/")
		for name := range strings.SplitSeq(top, "|") {
			exact, err := regexp.Compile("^(" + name + ")$")
			if err != nil {
				t.Errorf("%s: %v", fields[0], err)
				continue
			}
			matched := false
			for _, test := range tests {
				matched = matched || exact.MatchString(test)
			}
			if !matched {
				t.Errorf("%s has no test %s", fields[0], name)
			}
		}
	}
	if rows == 0 {
		t.Error("no row was read")
	}
}

// testsOf returns the names of the tests in the directory of a package.
func testsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, isFunc := d.(*ast.FuncDecl); isFunc && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
