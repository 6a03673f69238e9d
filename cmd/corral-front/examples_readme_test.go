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

// curlPage shows a call of each tool with curl.
const curlPage = "docs/how-to/call-the-tools-with-curl.md"

// TestReadmeExamples runs the calls that the README shows, and those of curlPage.
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
	text, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), curlPage))
	if err != nil {
		t.Fatal(err)
	}
	s.curl(t, string(text))
}

// A curlLine is a line of curlPage that begins with curl, and the output shown for it.
type curlLine struct {
	at      int // line of the page
	printed string
}

// curl runs the shell lines of a page in one shell. The comment below a curl line is its output.
func (s *exampleSite) curl(t *testing.T, page string) {
	t.Helper()
	token, hash := config.NewToken()
	w := s.web(t, s.Supervisor, s.sections+fmt.Sprintf("principals:\n  - {name: ci, token_sha256: \"%x\"}\n", hash))
	s.matcher.Learn("corral_…", token)
	s.matcher.Learn("http://127.0.0.1:7070/mcp", w.url)
	script, lines := s.script(page)
	if len(lines) == 0 {
		t.Fatal(curlPage + " has no line that begins with curl")
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
			err = errors.New("the page does not say what it prints")
		}
		if err == nil {
			err = s.matcher.Text(line.printed, string(got))
		}
		if err != nil {
			t.Errorf("%s:%d: %v", curlPage, line.at, err)
		}
	}
}

// script joins the shell lines of a page, with the output of each curl redirected to a file of its own.
func (s *exampleSite) script(page string) (string, []curlLine) {
	var script strings.Builder
	var lines []curlLine
	at, shell := 0, false
	for line := range strings.Lines(page) {
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
