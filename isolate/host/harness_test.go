package host

import (
	"path/filepath"
	"testing"

	"corral/internal/test/sandboxtest"
)

const owner = sandboxtest.Owner

var (
	mkdir, put         = sandboxtest.Mkdir, sandboxtest.Put
	exists, eventually = sandboxtest.Exists, sandboxtest.Settled
)

// programsDir returns the directory of the built programs.
func programsDir(t testing.TB) string {
	t.Helper()
	return filepath.Dir(sandboxtest.Bin(t, "corral-init"))
}
