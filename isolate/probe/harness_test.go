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

// TestMain: the test binary is also the server of file systems that stall. A test mounts a disk.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	os.Exit(sandboxtest.PrivateMounts(m))
}
