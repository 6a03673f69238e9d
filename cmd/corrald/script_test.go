package main

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
)

// TestScripts runs the scripts in testdata/script. SOCKET and INSTANCE belong to a supervisor that serves all of them.
func TestScripts(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	clitest.RunScripts(t, clitest.Suite{
		Dir: "testdata/script",
		Env: []string{"SOCKET=" + d.Socket, "INSTANCE=" + d.Instance},
		Commands: map[string]clitest.Command{
			// leftovers INSTANCE fails if anything of that supervisor is left on the host.
			"leftovers": func(t testing.TB, _ string, args []string) []string {
				if left := sandboxtest.Leftovers(args[0]); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
				return nil
			},
			// runtime-directory UID creates a directory below /run, where services have their sockets, and sets RUNTIME.
			"runtime-directory": func(t testing.TB, _ string, args []string) []string {
				uid, err := strconv.Atoi(args[0])
				if err != nil {
					t.Fatal(err)
				}
				runtime, err := os.MkdirTemp("/run", "corrald-test-") //nolint:usetesting // it must lie there
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Remove(runtime) })
				if err := errors.Join(os.Chown(runtime, uid, uid), os.Chmod(runtime, 0o755)); err != nil {
					t.Fatal(err)
				}
				return []string{"RUNTIME=" + runtime}
			},
		},
	})
}
