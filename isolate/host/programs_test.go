package host

import (
	"errors"
	"os"
	"path/filepath"
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
