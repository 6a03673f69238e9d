package admit

import (
	"os"
	"testing"

	"corral/internal/test/sandboxtest"
)

const owner = sandboxtest.Owner

var (
	newRepo, mkdir, put = sandboxtest.NewRepo, sandboxtest.Mkdir, sandboxtest.Put
	refusedAt, opened   = sandboxtest.RefusedAt, sandboxtest.Opened
	give, handle        = sandboxtest.Give, sandboxtest.Handle
	inMountNamespace    = sandboxtest.InMountNamespace
)

// TestMain: tests mount directories over each other.
func TestMain(m *testing.M) {
	os.Exit(sandboxtest.PrivateMounts(m))
}
