package main

import (
	"testing"

	"corral/internal/test/clitest"
	"corral/internal/test/sandboxtest"
	"corral/internal/usage"
)

// TestScripts plays the command lines in testdata/script. SOCKET is a supervisor's that serves all of them.
func TestScripts(t *testing.T) {
	sandboxtest.RequireJails(t)
	clitest.RunScripts(t, clitest.Suite{
		Dir: "testdata/script",
		Env: []string{"SOCKET=" + serve(t).Socket},
		Files: map[string]string{
			"usage": usage.Corral, "usage-run": usage.Run, "usage-ps": usage.Ps, "usage-reload": usage.Reload, "usage-kill": usage.Kill, "usage-drain": usage.Drain, "usage-session": usage.Session,
		},
	})
}
