package probe

import (
	"os"
	"testing"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
)

const owner = isolatetest.Owner

var (
	newRepo, eventually = isolatetest.NewRepo, isolatetest.Eventually
	opened, waits       = isolatetest.Opened, isolatetest.Waits
	openDescriptors     = isolatetest.OpenDescriptors
)

// TestMain: the test binary is also the server of file systems that stall.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	os.Exit(m.Run())
}
