package runtimes

import (
	"os/exec"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestFillCache checks that the command which fills the prebuilt cache tests a package of this Go's standard library that imports
// what other programs may import of it. The last step, which takes minutes, is not run.
func TestFillCache(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("go"))
	c, missing := Find(Places{}).Choose("go", "", nil)
	if missing != "" {
		t.Fatal(missing)
	}
	script, _, ok := strings.Cut(fillCache(c.Path), " && GOCACHE="+goCaches[0]+" ")
	// The directory of temporary files may be in a repository of somebody else.
	cmd := exec.Command("/bin/sh", "-c", script+" && "+c.Path+" list -buildvcs=false -test -deps | sort | tr '\\n' ' '")
	cmd.Env = append(c.env, "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "PATH="+c.paths, "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil || !ok {
		t.Fatalf("%v, %s", err, out)
	}
	for _, name := range []string{"encoding/json", "go/types", "net/http", "testing", "testing/quick", "vendor/golang.org/x/net/idna"} {
		if !strings.Contains(" "+string(out), " "+name+" ") {
			t.Errorf("without %s: %s", name, out)
		}
	}
}
