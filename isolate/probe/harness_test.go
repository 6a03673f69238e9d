package probe

import (
	"os"
	"testing"

	"corral/internal/test/sandboxtest"
)

const owner = sandboxtest.Owner

var (
	newRepo, eventually = sandboxtest.NewRepo, sandboxtest.Settled
	opened, waits       = sandboxtest.Opened, sandboxtest.Waits
	openDescriptors     = sandboxtest.OpenDescriptors
)

// TestMain: the test binary is also the server of file systems that stall. A test mounts a disk.
func TestMain(m *testing.M) {
	sandboxtest.ServeFiles()
	os.Exit(sandboxtest.PrivateMounts(m))
}
