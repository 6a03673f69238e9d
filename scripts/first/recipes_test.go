package first

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A recipe is a section of CONTRIBUTING.md. testdata/recipes has an example of what is edited by hand.
type recipe struct {
	title, example string
	most           int // files that are edited by hand
}

var recipes = []recipe{
	{"A limit.", "limit", 6},
	{"A preset of hosts.", "preset", 2},
	{"A tool.", "tool", 4},
}

// goCommand is a command of a recipe that writes what is generated.
var goCommand = regexp.MustCompile("`((?:UPDATE=1 )?go test [^`]*)`")

// TestRecipes follows recipes of CONTRIBUTING.md in a copy of the sources: with the edits of the examples, which are of few files that the
// recipe names, and after its commands, the tests of what is generated and documented succeed.
func TestRecipes(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("go"), sandboxtest.Program("git"), sandboxtest.Program("tar"))
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(script string) {
		t.Helper()
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	run("tar -C '" + sandboxtest.ModuleRoot(t) + "' --exclude=./.git --exclude=./bin --exclude=./.cache -cf - . | tar -xf -")
	var commands []string
	for _, r := range recipes {
		_, text, ok := strings.Cut(string(page), "\n**"+r.title+"** ")
		text, _, _ = strings.Cut(text, "\n\n")
		if !ok {
			t.Fatalf("CONTRIBUTING.md has no recipe %q", r.title)
		}
		diff, err := filepath.Abs("testdata/recipes/" + r.example + ".diff")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("git", "apply", "--numstat", diff).Output()
		files := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(files) > r.most {
			t.Errorf("%s: %d files are edited by hand, more than %d: %q, %v", r.title, len(files), r.most, files, err)
		}
		for _, file := range files {
			name := file[strings.LastIndex(file, "\t")+1:]
			if !strings.Contains(text, name) && !strings.Contains(text, filepath.Dir(name)) {
				t.Errorf("%s: the recipe does not name %s", r.title, name)
			}
		}
		run("git apply -C1 '" + diff + "'")
		for _, command := range goCommand.FindAllStringSubmatch(strings.ReplaceAll(text, "\n", " "), -1) {
			commands = append(commands, command[1])
		}
	}
	// The flags of `make test`, so that go has compiled most of it already, without regard to the directory; make check vets.
	t.Setenv("GOFLAGS", "-trimpath -gcflags=all=-dwarf=false -tags=seccomp,netgo,osusergo -vet=off '-ldflags=-s -w'")
	run(strings.Join(commands, "\n"))
	run("go test ./docs ./front/server ./internal/config ./internal/layers ./internal/usage ./job ./policy ./policy/ask ./policy/network")
}
