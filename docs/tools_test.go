package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// row is the comment below the title of a page of interfaces: the cells of the page's row in the tables of tools, which
// are the tools' names, what else they are called, and their purpose.
var row = regexp.MustCompile(`(?m)^<!-- row: (.+?) \| ?(.*?) ?\| (.+) -->$`)

// TestToolTable compares the table of tools, which the README has between markers, with the rows that the pages of interfaces state.
// With -update it writes the table.
func TestToolTable(t *testing.T) {
	const file, begin, end = "../README.md", "<!-- generated: tools -->\n", "<!-- /generated: tools -->\n"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(content), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no section between %q and %q", file, begin, end)
	}
	want := before + begin + toolTable(t) + end + after
	if want == string(content) {
		return
	}
	if !*update {
		t.Errorf("%s: the table of tools is out of date. Run: go test ./docs -run TestToolTable -update", file)
	} else if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// toolTable returns the table of all tools with links to their pages, in the order of the pages' names.
func toolTable(t *testing.T) string {
	t.Helper()
	table := "| tool | also called | purpose |\n|---|---|---|\n"
	for _, file := range pages(t) { // sorted by name
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := row.FindStringSubmatch(string(page))
		if m == nil {
			t.Errorf("%s has no line <!-- row: NAMES | ALSO CALLED | PURPOSE -->", file)
			continue
		}
		also := " "
		if m[2] != "" {
			also = " " + m[2] + " "
		}
		table += fmt.Sprintf("| [%s](docs/interfaces/%s) |%s| %s |\n", m[1], filepath.Base(file), also, m[3])
	}
	return table
}
