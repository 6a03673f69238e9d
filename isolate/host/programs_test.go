package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestLoadPrograms: the interpreter may be missing, and every program must be whole and writable by root alone.
func TestLoadPrograms(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := t.TempDir()
	names := []string{"corral-init", "corral-stub", "corral-layer"}
	for _, name := range names {
		put(t, filepath.Join(dir, name), "x", 0o755, 0)
	}
	p, err := LoadPrograms(dir)
	if err != nil || p.Starlark != nil {
		t.Fatalf("without the interpreter: %+v, %v", p, err)
	}
	p.Close()
	put(t, filepath.Join(dir, StarlarkProgram), "x", 0o755, 0)
	if p, err = LoadPrograms(dir); err != nil || p.Starlark == nil {
		t.Fatalf("with it: %+v, %v", p, err)
	}
	p.Close()
	for _, name := range append(names, StarlarkProgram) {
		path := filepath.Join(dir, name)
		for what, spoil := range map[string]func() error{
			"another's": func() error { return os.Chown(path, owner, 0) },
			"writable":  func() error { return os.Chmod(path, 0o757) },
			"a link":    func() error { return errors.Join(os.Remove(path), os.Symlink("/bin/true", path)) },
			"too long":  func() error { return os.Truncate(path, maxProgram+1) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if _, err := LoadPrograms(dir); err == nil {
				t.Errorf("%s that is %s was accepted", name, what)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			put(t, path, "x", 0o755, 0)
		}
	}
}

// TestFork: the program is executed whatever numbers it and the files of the child have.
func TestFork(t *testing.T) {
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	run := func(what string, program *os.File, files ...uintptr) {
		t.Helper()
		pid, err := Fork(program, "true", &syscall.ProcAttr{Files: files})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
			t.Errorf("%s: %v, %v", what, status, err)
		}
	}
	// The child's pipe gets the numbers that are free, and is then moved to the one behind those of its files: the program's.
	free := []*os.File{open(os.DevNull), open(os.DevNull)}
	last, program := open(os.DevNull), open("/usr/bin/true")
	for _, f := range free {
		f.Close()
	}
	run("behind the files", program, last.Fd())
	many := make([]uintptr, program.Fd()+2)
	for n := range many {
		many[n] = last.Fd()
	}
	run("among those of the child", program, many...)
	run("without files", program, NoFile, NoFile, NoFile)
}
