package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestTable: each check of the table is in its file once, so that it can be left out.
func TestTable(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	mutants, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join(root, m.file))
		if n := strings.Count(string(source), m.from); err != nil || n != 1 || m.from == m.to {
			t.Errorf("%s: %s has %q %d times, want once: %v", m.prevents, m.file, m.from, n, err)
		}
	}
	if len(mutants) < 150 {
		t.Errorf("%d checks, want 150 or more", len(mutants))
	}
}
