package host

import (
	"path/filepath"
	"testing"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
)

const owner = isolatetest.Owner

var (
	mkdir, put         = isolatetest.Mkdir, isolatetest.Put
	exists, eventually = isolatetest.Exists, isolatetest.Eventually
)

// programsDir returns the directory of the built programs.
func programsDir(t testing.TB) string {
	t.Helper()
	return filepath.Dir(sandboxtest.Bin(t, "corral-init"))
}
