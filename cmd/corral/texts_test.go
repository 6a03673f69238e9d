package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestMistakes compares what the installed command says of the mistakes in testdata/mistakes.txt.
func TestMistakes(t *testing.T) {
	text := content(t, "testdata/mistakes.txt")
	entries := regexp.MustCompile(`(?m)^([^#\s].*)\n((?:\t.*\n)+)`).FindAllStringSubmatch(text, -1)
	if commands := len(regexp.MustCompile(`(?m)^[^#\s]`).FindAllString(text, -1)); len(entries) != commands || commands == 0 {
		t.Fatalf("%d entries of %d commands", len(entries), commands)
	}
	for _, entry := range entries {
		t.Run(entry[1], func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(entry[1], "\u00a0", "\x01"))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x01", " ")
			}
			checkMistake(t, strings.TrimSuffix(strings.ReplaceAll(entry[2][1:], "\n\t", "\n"), "\n"), args...)
		})
	}
}

// TestMistakesInJSON: with --json, an error is an object on standard output.
func TestMistakesInJSON(t *testing.T) {
	for args, want := range map[string]string{
		"session exec --background --json x":      `"error":{"message":"no program given","hint":"corral session exec ID -- PROGRAM [ARG]"}`,
		"session exec --background --json x true": `"error":{"message":"--background and --json cannot be combined: the output is stored"`,
	} {
		out, err := exec.Command(sandboxtest.Bin(t, "corral"), strings.Fields(args)...).Output()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %s", args, err, out, want)
		}
	}
}

// TestMistakesOfPlace: what the supervisor refuses.
func TestMistakesOfPlace(t *testing.T) {
	sandboxtest.RequireJails(t)
	checkMistake(t, "/etc is refused as a repository, because it contains the system's configuration and secrets\nhint: use the directory of a project",
		"run", "--repo", "/etc", "true")
	checkMistake(t, "profile \"x\" is not known\nhint: must be default or strict", "run", "--profile", "x", "true")
	out, err := exec.Command(sandboxtest.Bin(t, "corral"), "run", "--repo", t.TempDir(), "--memory", "900TB", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "memory: 818.5TiB is more than the operator allows, which is ") || strings.Contains(string(out), "KiB") {
		t.Errorf("900 TB: %v, %s", err, out)
	}
}

func checkMistake(t *testing.T, want string, args ...string) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral"), args...)
	var stderr strings.Builder
	cmd.Stderr, cmd.Dir = &stderr, t.TempDir()
	_ = cmd.Run()
	if got := stderr.String(); cmd.ProcessState.ExitCode() != exitFailure || got != "corral: "+want+"\n" {
		t.Errorf("exit code %d, got\n%swant\ncorral: %s", cmd.ProcessState.ExitCode(), got, want)
	}
}
