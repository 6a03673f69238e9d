package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/example"
)

// lacks are the kinds of examples that a page does not have, with the reason.
var lacks = map[string]map[string]string{
	"runtime_query_output": {example.Timeout: "nothing is run"},
	"ctx_jobs": {
		example.Refused: "it has no arguments, and runs nothing that the policy could be against",
		example.Timeout: "it looks into memory",
		example.Error:   "a list may be empty, and that is all",
	},
	"ctx_stats": {
		example.Refused: "nothing is run",
		example.Timeout: "nothing is run",
	},
	"ctx_purge":  {example.Timeout: "nothing is run"},
	"ctx_index":  {example.Timeout: "nothing is run"},
	"ctx_search": {example.Timeout: "nothing is run"},
}

// pages are those of interfaces but their list.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("interfaces/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "README.md" })
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	return files
}

// TestKinds: each page has examples of each kind. That they are true is a test of cmd/corral-front.
func TestKinds(t *testing.T) {
	known := map[string]bool{}
	for _, file := range pages(t) {
		page, err := example.Read(file, true)
		if err != nil {
			t.Error(err)
			continue
		}
		known[page.Name] = true
		missing := page.Missing()
		for _, kind := range missing {
			if lacks[page.Name][kind] == "" {
				t.Errorf("%s has no example of the kind %s", file, kind)
			}
		}
		for kind := range lacks[page.Name] {
			if !slices.Contains(missing, kind) {
				t.Errorf("%s has an example of the kind %s, which it is said not to have", file, kind)
			}
		}
		for _, section := range []string{"Security", "Performance"} {
			if text := read(t, file); !strings.Contains(text, "\n## "+section+"\n") {
				t.Errorf("%s has no section %s", file, section)
			}
		}
	}
	for name := range lacks {
		if !known[name] {
			t.Errorf("there is no page %s", name)
		}
	}
}

// TestTools: the README and the list of interfaces have a row for each page, with the same names, and the page on curl has
// a line for each tool.
func TestTools(t *testing.T) {
	readme := read(t, "../README.md")
	_, section, found := strings.Cut(readme, "\n## Tools\n")
	if !found {
		t.Fatal("README.md has no section Tools")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	table := toolRows(section, "docs/interfaces/")
	list := toolRows(read(t, "interfaces/README.md"), "")
	for page, names := range table {
		if list[page] != names {
			t.Errorf("%s: README.md calls it %q, interfaces/README.md %q", page, names, list[page])
		}
	}
	for _, file := range pages(t) {
		page := filepath.Base(file)
		if table[page] == "" || list[page] == "" {
			t.Errorf("no row leads to %s", file)
		}
	}
	called := regexp.MustCompile(`(?m)^curl .*"name":"([a-z_]+)"`).FindAllStringSubmatch(read(t, "how-to/call-the-tools-with-curl.md"), -1)
	for page, names := range table {
		for name := range strings.FieldsSeq(names) {
			// command/exec is not served over HTTP; a name with dots is another one of the same tool.
			if strings.ContainsAny(name, "./") || slices.ContainsFunc(called, func(m []string) bool { return m[1] == name }) {
				continue
			}
			t.Errorf("%s: how-to/call-the-tools-with-curl.md has no line that calls %s", page, name)
		}
	}
}

// toolRows are the rows of a table of tools: the names of each page.
func toolRows(text, dir string) map[string]string {
	rows := map[string]string{}
	link := regexp.MustCompile(`\]\(` + regexp.QuoteMeta(dir) + `([a-z_.]+\.md)\)`)
	name := regexp.MustCompile("`([a-z][A-Za-z_./]*)`")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		m := link.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, n := range name.FindAllStringSubmatch(cells[1]+cells[2], -1) {
			rows[m[1]] = strings.TrimSpace(rows[m[1]] + " " + n[1])
		}
	}
	return rows
}

// TestLinks: what a page links is there, and so is the heading.
func TestLinks(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../*.md", "*.md", "*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	links := 0
	for _, file := range files {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(unfenced(read(t, file)), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			path, heading, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links %s: %v", file, m[1], err)
			} else if heading != "" && !headings(read(t, target))[heading] {
				t.Errorf("%s links %s, which has no such heading: %q", file, m[1], slices.Sorted(maps.Keys(headings(read(t, target)))))
			}
		}
	}
	if links == 0 {
		t.Error("no links are found")
	}
}

// headings are the anchors of a page's headings, as GitHub makes them: lower case, "-" for spaces, without punctuation.
func headings(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(unfenced(page), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		anchors[anchor] = true
	}
	return anchors
}

// unfenced is a page without its fenced blocks, in which nothing is a link or a heading.
func unfenced(page string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			fenced = !fenced
		} else if !fenced {
			b.WriteString(line)
		}
	}
	return b.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
