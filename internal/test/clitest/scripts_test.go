package clitest

import (
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	t.Setenv("CORRAL_STRANGER", "1") // no script may see it
	RunScripts(t, Suite{
		Dir: "testdata", Env: []string{"SUITE=has it"}, Files: map[string]string{"text": "of the suite\n"},
		Commands: map[string]Command{"greet": func(_ testing.TB, dir string, args []string) []string {
			return []string{"GREETING=" + strings.Join(args, " ") + " in " + dir}
		}},
	})
}
