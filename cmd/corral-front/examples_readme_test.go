package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/config"
	"corral/internal/test/example"
	"corral/internal/test/sandboxtest"
)

// TestReadmeExamples runs the calls that the README shows.
func TestReadmeExamples(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("curl"), sandboxtest.Program("python3"))
	s := newExampleSite(t)
	file := filepath.Join(sandboxtest.ModuleRoot(t), "README.md")
	page, err := example.Read(file, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Calls()) == 0 {
		t.Error("README.md shows no call")
	}
	h := s.host(t)
	for _, c := range page.Calls() {
		s.call(t, h, page, c)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.curl(t, string(text))
}

// A curlLine is a line of the README that begins with curl, and the output shown for it.
type curlLine struct {
	at      int // line of the README
	printed string
}

// curl runs the shell lines of the README's section on tools in one shell. The comment below a curl line is its output.
func (s *exampleSite) curl(t *testing.T, readme string) {
	t.Helper()
	token, hash := config.NewToken()
	w := s.web(t, s.Supervisor, s.sections+fmt.Sprintf("principals:\n  - {name: ci, token_sha256: \"%x\"}\n", hash))
	s.matcher.Learn("corral_…", token)
	s.matcher.Learn("http://127.0.0.1:7070/mcp", w.url)
	script, lines := s.script(readme)
	if len(lines) == 0 {
		t.Fatal("README.md: the section Tools has no line that begins with curl")
	}
	work := t.TempDir()
	shell := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
	shell.Dir = work
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\nin\n%s", err, out, script)
	}
	for n, line := range lines {
		got, err := os.ReadFile(filepath.Join(work, fmt.Sprintf("out.%d", n)))
		if err == nil && line.printed == "" {
			err = errors.New("the README does not say what it prints")
		}
		if err == nil {
			err = s.matcher.Text(line.printed, string(got))
		}
		if err != nil {
			t.Errorf("README.md:%d: %v", line.at, err)
		}
	}
}

// script joins the shell lines of the section, with the output of each curl redirected to a file of its own.
func (s *exampleSite) script(readme string) (string, []curlLine) {
	before, section, _ := strings.Cut(readme, "\n## Tools\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script strings.Builder
	var lines []curlLine
	at, shell := strings.Count(before, "\n")+2, false
	for line := range strings.Lines(section) {
		at++
		printed, isComment := strings.CutPrefix(line, "# ")
		switch {
		case strings.HasPrefix(line, "```"):
			shell = !shell && line == "```sh\n"
		case !shell:
		case isComment && len(lines) > 0:
			lines[len(lines)-1].printed += printed
		case strings.HasPrefix(line, "curl "):
			fmt.Fprintf(&script, "{ %s; } >out.%d\n", strings.TrimSuffix(s.matcher.Actual(line), "\n"), len(lines))
			lines = append(lines, curlLine{at: at})
		default:
			script.WriteString(s.matcher.Actual(line))
		}
	}
	return script.String(), lines
}
