package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// armed is a directory in which a file is named for the function whose next call panics, in a corrald that injected has built. The first
// call removes the file.
const armed = "/run/corral/armed"

// instrumented are the packages whose functions can be made to panic.
var instrumented = []string{
	"isolate", "isolate/admit", "isolate/cell", "isolate/door", "isolate/meter", "isolate/sessions", "isolate/wire",
}

// hit is the source of the package that the functions call. No program that is shipped has it.
const hit = `package hit

import "syscall"

func At(path string) {
	if syscall.Unlink(path) == nil {
		panic("injected at " + path)
	}
}
`

// injected builds a corrald in which each function of the instrumented packages begins with a call that panics if a test has armed it, and
// makes it the one of this test. It changes no file: the compiler gets the changed source as an overlay.
func injected(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("go"))
	module := sandboxtest.ModuleRoot(t)
	sources := map[string][]byte{filepath.Join(module, "internal/fault/hit/hit.go"): []byte(hit)}
	for _, dir := range instrumented {
		files, err := filepath.Glob(filepath.Join(module, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				sources[file] = instrument(t, file)
			}
		}
	}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		sum.Write(sources[name])
	}
	original := sandboxtest.Bin(t, "corrald")
	version, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	sum.Write(version) // built from all other sources
	kept := sandboxtest.Prepared(t, "corrald-with-panics", []string{fmt.Sprintf("%x", sum.Sum(nil))}, func(dir string) error {
		overlay := map[string]map[string]string{"Replace": {}}
		for n, name := range names {
			changed := filepath.Join(dir, fmt.Sprintf("%d.go", n))
			if err := os.WriteFile(changed, sources[name], 0o600); err != nil {
				return err
			}
			overlay["Replace"][name] = changed
		}
		list, err := json.Marshal(overlay)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
			return err
		}
		cmd := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-tags", "seccomp,netgo", // as make does
			"-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "corrald"), "./cmd/corrald")
		cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	bin := sandboxtest.OpenDir(t)
	programs, err := filepath.Glob(filepath.Join(filepath.Dir(original), "corral*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if err := sandboxtest.CopyProgram(program, filepath.Join(bin, filepath.Base(program))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(bin, "corrald")); err != nil {
		t.Fatal(err)
	}
	if err := sandboxtest.CopyProgram(filepath.Join(kept, "corrald"), filepath.Join(bin, "corrald")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CORRAL_BIN", bin)
	if err := os.MkdirAll(armed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(armed) })
}

// instrument returns the source of a file in which each function calls hit.At with its name first.
func instrument(t *testing.T, name string) []byte {
	t.Helper()
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	at, calls := 0, 0
	insert := func(where token.Pos, text string) {
		offset := files.Position(where).Offset
		out.Write(source[at:offset])
		out.WriteString(text)
		at = offset
	}
	insert(file.Name.End(), `; import "corral/internal/fault/hit"`)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		calls++
		insert(f.Body.Lbrace+1, fmt.Sprintf(" hit.At(%q);", filepath.Join(armed, functionName(file, f))))
	}
	out.Write(source[at:])
	if calls == 0 {
		return source
	}
	return out.Bytes()
}

// functionName returns the name by which a function is armed, such as cell.Slot.Start.
func functionName(file *ast.File, f *ast.FuncDecl) string {
	name := file.Name.Name + "."
	if f.Recv != nil {
		of := f.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if generic, ok := of.(*ast.IndexExpr); ok {
			of = generic.X
		}
		name += of.(*ast.Ident).Name + "."
	}
	return name + f.Name.Name
}
