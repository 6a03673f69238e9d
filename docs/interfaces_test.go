package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/example"
)

// without is the comment by which a page says that it has no examples of a kind, and why.
var without = regexp.MustCompile(`(?m)^<!-- no example of ([a-z]+): .+ -->$`)

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

// TestKinds: each page has examples of each kind, or says why it has none. That they are true is a test of cmd/corral-front.
func TestKinds(t *testing.T) {
	for _, file := range pages(t) {
		page, err := example.Read(file, true)
		if err != nil {
			t.Error(err)
			continue
		}
		text := read(t, file)
		var excused []string
		for _, m := range without.FindAllStringSubmatch(text, -1) {
			excused = append(excused, m[1])
		}
		missing := page.Missing()
		slices.Sort(missing)
		slices.Sort(excused)
		if !slices.Equal(missing, excused) {
			t.Errorf("%s has no examples of %q, and says so of %q (<!-- no example of KIND: REASON -->)", file, missing, excused)
		}
		for _, section := range []string{"Security", "Performance"} {
			if !strings.Contains(text, "\n## "+section+"\n") {
				t.Errorf("%s has no section %s", file, section)
			}
		}
	}
}

// TestCurl: the page on curl calls tools only that have a page.
func TestCurl(t *testing.T) {
	var names []string
	for _, file := range pages(t) {
		names = append(names, strings.FieldsFunc(row.FindStringSubmatch(read(t, file))[1], func(r rune) bool { return strings.ContainsRune("`, ", r) })...)
	}
	called := regexp.MustCompile(`(?m)^curl -sK corral.curl -d "\$CALL"'{"name":"([a-z_]+)"`).FindAllStringSubmatch(read(t, "how-to/call-the-tools-with-curl.md"), -1)
	if len(called) == 0 {
		t.Error("the page on curl calls no tool")
	}
	for _, m := range called {
		if !slices.Contains(names, m[1]) {
			t.Errorf("how-to/call-the-tools-with-curl.md calls %s: the tools are %q", m[1], names)
		}
	}
}

// TestLinks: what a page links is there, and so is the heading, also in a package, which has all pages.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("../scripts/package/pages", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(dir, pattern))
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
				t.Errorf("%s links %s, which does not exist or is not in packages: %v", file, m[1], err)
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
