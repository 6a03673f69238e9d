// Package docs has only tests: they compare the pages with the code, and draw the pictures.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constants returns the string constants of a Go file whose names begin with prefix, by value.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, prefix) || i >= len(spec.Values) {
				continue
			}
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values[value] = true
			}
		}
		return true
	})
	if len(values) == 0 {
		t.Fatalf("%s has no constants %s…", file, prefix)
	}
	return slices.Sorted(maps.Keys(values))
}

// rows returns what is in the first column of the table below a heading, without the backquotes.
func rows(t *testing.T, file, heading string) []string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

func same(t *testing.T, what string, page, code []string) {
	t.Helper()
	if !slices.Equal(page, code) {
		t.Errorf("%s: the page has %q, the code %q", what, page, code)
	}
}

// TestErrors: the reference of errors has each code, status and limit, and no other.
func TestErrors(t *testing.T) {
	const page = "reference/errors.md"
	same(t, "codes", rows(t, page, "Errors of a tool"), constants(t, "../mcp/tool/tool.go", "Code"))
	same(t, "limits", rows(t, page, "Limits"), constants(t, "../job/job.go", "Limit"))

	statuses := map[string]bool{}
	for _, name := range []string{"Success", "Failure", "Timeout", "Cancelled", "Denied"} {
		for _, value := range constants(t, "../job/job.go", name) {
			statuses[value] = true
		}
	}
	same(t, "statuses", rows(t, page, "Statuses"), slices.Sorted(maps.Keys(statuses)))
}

// TestReachable: a reader of the README reaches each page by links.
func TestReachable(t *testing.T) {
	reached, next := map[string]bool{}, []string{"README.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if reached[page] {
			continue
		}
		reached[page] = true
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+\.md)`).FindAllStringSubmatch(unfenced(read(t, "../"+page)), -1) {
			if !strings.Contains(m[1], "://") {
				next = append(next, filepath.Join(filepath.Dir(page), m[1]))
			}
		}
	}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if page := filepath.Join("docs", path); strings.HasSuffix(path, ".md") && !reached[page] {
			t.Errorf("no page that the README leads to links %s", page)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedDirectories: the reference of runtimes names the directories in which programs are looked for, and no others.
func TestDocumentedDirectories(t *testing.T) {
	code, err := os.ReadFile("../policy/runtimes/places.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("reference/runtimes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(code), `"/usr/local/sbin"`)
	list, _, ok := strings.Cut(`"/usr/local/sbin"`+list, "}")
	if !ok {
		t.Fatal("policy/runtimes/places.go has no list of directories")
	}
	var want []string
	for _, m := range regexp.MustCompile(`"(/[^"]+)"`).FindAllStringSubmatch(list, -1) {
		want = append(want, m[1])
	}
	_, section, _ := strings.Cut(string(page), "\n2. In ")
	section, _, _ = strings.Cut(section, ".\n")
	var got []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	if len(want) < 5 || !slices.Equal(got, want) {
		t.Errorf("the page has %q, the code %q", got, want)
	}
	managers, err := os.ReadFile("../policy/runtimes/managers.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\t\{"(\.?[a-z./-]+)", func\(m home\)`).FindAllStringSubmatch(string(managers), -1)
	for _, m := range rows {
		if !strings.Contains(string(page), "`~/"+m[1]+"`") {
			t.Errorf("the page does not name ~/%s", m[1])
		}
	}
	if len(rows) < 5 {
		t.Errorf("policy/runtimes/managers.go has %d rows", len(rows))
	}
}
