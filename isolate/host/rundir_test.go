package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestRunDirOwner: names in the directory decide what is cleared, so it must be writable by root alone.
func TestRunDirOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	top := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"another's":   func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, owner, owner)) },
		"everybody's": func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) },
		"a link":      func(path string) error { return os.Symlink("/tmp", path) },
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"of open instances": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.Mkdir(path+"/instances", 0o755), os.Chmod(path+"/instances", 0o777))
		},
		"of linked instances": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.Symlink("/tmp", path+"/instances"))
		},
	} {
		path := filepath.Join(top, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if err := checkRunDir(path); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for range 2 {
		if err := checkRunDir(filepath.Join(top, "good")); err != nil {
			t.Error(err)
		}
	}
}
