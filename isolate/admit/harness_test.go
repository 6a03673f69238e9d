package admit

import (
	"os"
	"testing"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
)

const owner = isolatetest.Owner

var (
	newRepo, mkdir, put = isolatetest.NewRepo, isolatetest.Mkdir, isolatetest.Put
	refusedAt, opened   = isolatetest.RefusedAt, isolatetest.Opened
	give, handle        = isolatetest.Give, isolatetest.Handle
	inMountNamespace    = isolatetest.InMountNamespace
)

// TestMain: tests mount directories over each other.
func TestMain(m *testing.M) {
	os.Exit(sandboxtest.PrivateMounts(m))
}
